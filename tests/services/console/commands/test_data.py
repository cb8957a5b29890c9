"""`rampart data`: its commands list, fetch, check and show, and their errors."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rampart_fl.services.console.commands.data import data
from rampart_fl.shared.learning.data import client_data
from rampart_fl.shared.learning.data.datasets import Dataset, Samples, datasets, openml
from rampart_fl.shared.learning.data.datasets.files import CACHE, VARIABLE
from rampart_fl.shared.learning.data.datasets.openml import RowsArrived
from tests.conftest import ForgetMembers

Rampart = Callable[..., Any]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a small usps, without a network and with no data sets in memory."""

    def away(data_id: int, arrived: RowsArrived) -> None:
        raise OSError(f"no route to data set {data_id}")

    draws = np.random.default_rng(1)
    x = draws.integers(0, 256, (10, 16, 16), dtype=np.uint8)
    y = np.arange(10, dtype=np.uint8) % 9
    np.savez(tmp_path / "usps.npz", x_train=x, y_train=y, x_test=x[:2], y_test=y[:2])
    monkeypatch.setattr(openml, "table", away)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    kept = (client_data._partition, client_data._samples)
    for cache in kept:
        cache.cache_clear()
    yield tmp_path
    for cache in kept:
        cache.cache_clear()


def parsed(said: Any, code: int = 0) -> Any:
    """The line of JSON that a command printed."""
    assert said.code == code, said.err
    (line,) = said.out.splitlines()
    return json.loads(line)


def test_every_command_has_help(rampart: Rampart) -> None:
    listed = rampart("data", "--help").out
    names = [command.name or command.callback.__name__ for command in data.registered_commands]
    assert names == ["list", "fetch", "check", "show"]
    for name in names:
        said = rampart("data", name, "--help")
        assert said.code == 0
        assert name in listed
        assert f"data {name} [OPTIONS]" in said.out
    assert "data" in rampart("--help").out


def test_list_shows_every_data_set_and_whether_it_is_present(
    rampart: Rampart, folder: Path
) -> None:
    rows = {row["name"]: row for row in parsed(rampart("data", "list", "--json"))}
    assert tuple(rows) == datasets.names()
    usps, mnist, digits = rows["usps"], rows["mnist"], rows["digits"]
    assert (usps["samples"], usps["total"], usps["present"]) == (12, 9298, True)
    assert (usps["shape"], usps["classes"]) == ([1, 16, 16], 10)
    assert usps["place"] == str(folder / "usps.npz")
    assert (mnist["samples"], mnist["present"], mnist["source"]) == (70_000, False, "OpenML")
    assert (digits["samples"], digits["present"]) == (1797, True)
    assert rows["wisdm_raw"]["source"] == "you"
    shown = rampart("data", "list").out
    assert all(name in shown for name in rows)
    assert "of 9,298" in shown


def test_list_shows_the_actual_size_of_a_user_supplied_data_set(
    rampart: Rampart, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = np.zeros((3, 3, 200), dtype=np.float32), np.arange(3, dtype=np.uint8)
    np.savez(folder / "wisdm_raw.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    monkeypatch.setenv("COLUMNS", "40")  # Without a terminal, no path is broken over lines.
    said = rampart("data", "list")
    assert said.code == 0, said.err
    (row,) = [line.split() for line in said.out.splitlines() if "wisdm_raw" in line.split()]
    assert row[1:-1:2][:5] == ["wisdm_raw", "6", "3x1x200", "6", "yes"]
    assert "RAMPART_DATA_DIR: " + str(folder / "wisdm_raw.npz") in said.out


def test_fetch_prints_the_path_of_each_data_set(rampart: Rampart, folder: Path) -> None:
    rows = parsed(rampart("data", "fetch", "usps", "digits", "--json"))
    assert rows == [
        {"name": "usps", "path": str(folder / "usps.npz")},
        {"name": "digits", "path": None},
    ]
    assert "digits: needs no file" in rampart("data", "fetch", "digits").out


def test_fetch_reports_each_failure_and_fetches_the_rest(rampart: Rampart) -> None:
    said = rampart("data", "fetch", "mnist", "nothing", "hapt", "usps", "--json")
    assert [row["name"] for row in parsed(said, code=1)] == ["usps"]
    mnist, nothing, hapt = said.err.splitlines()
    assert "no route to data set 554" in mnist
    assert "put mnist.npz" in mnist
    assert "unknown data set 'nothing'" in nothing
    assert "put hapt.npz" in hapt
    assert rampart("data", "fetch").code == 2


def test_check_summarizes_the_data_sets_that_are_present(rampart: Rampart, folder: Path) -> None:
    (row,) = parsed(rampart("data", "check", "usps", "--json"))
    assert row["samples"] == 12
    assert row["classes"] == [3, 2, 1, 1, 1, 1, 1, 1, 1, 0]
    assert (row["low"], row["high"], row["users"]) == (0, 1, None)
    said = rampart("data", "check")
    assert said.code == 0
    assert "usps: 12 samples, 10 classes of 0 to 3 (1 empty), numbers 0 to 1" in said.out
    assert "digits: 1,797 samples" in said.out
    assert "mnist" not in said.out


def test_check_reports_missing_and_damaged_data_sets(rampart: Rampart, folder: Path) -> None:
    said = rampart("data", "check", "mnist")
    assert said.code == 1
    assert "'mnist' is missing; `rampart data fetch mnist` gets it from OpenML" in said.err
    said = rampart("data", "check", "wisdm_raw")
    assert said.code == 1
    assert "'wisdm_raw' is not on this machine: put wisdm_raw.npz" in said.err
    x, y = np.zeros((2, 28, 28), dtype=np.uint8), np.array([0, 10])
    np.savez(folder / "mnist.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    said = rampart("data", "check", "--json")
    assert {row["name"] for row in parsed(said, code=1)} >= {"digits", "usps"}
    assert "outside 0..9" in said.err
    (folder / "mnist.npz").write_text("no archive")
    assert "cannot read" in rampart("data", "check", "mnist").err
    assert parsed(rampart("data", "list", "--json"))


@pytest.mark.slow
def test_show_prints_and_plots_the_class_counts_of_each_client(
    rampart: Rampart, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "counts.png"
    content = parsed(rampart("data", "show", "digits-benign", "--png", str(picture), "--json"))
    clients = content["clients"]
    assert [client["client"] for client in clients] == [f"client-{i:02d}" for i in range(20)]
    assert sum(sum(client["classes"]) for client in clients) == 1797
    for client in clients:
        assert client["train"] + client["test"] == sum(client["classes"])
        assert client["held"] == 2 == sum(count > 0 for count in client["classes"])
    assert picture.read_bytes().startswith(b"\x89PNG")
    shown = rampart("data", "show", "digits-benign").out
    assert "digits, classes_per_client (classes 2), seed 1" in shown
    assert all(str(count) in shown for count in clients[0]["classes"] if count)
    other = parsed(rampart("data", "show", "digits-benign", "--seed", "5", "--json"))
    assert other["seed"] == 5
    assert other["clients"] != clients


def test_show_uses_the_base_experiment_of_a_sweep(rampart: Rampart) -> None:
    content = parsed(rampart("data", "show", "digits-pawbrofl-mu", "--json"))
    assert content["experiment"] == "digits-pawbrofl-mu"
    assert len(content["clients"]) > 1


def test_show_reports_missing_data_and_unknown_experiments(
    rampart: Rampart, tmp_path: Path
) -> None:
    file = tmp_path / "own.toml"
    file.write_text('name = "own"\nmodel = "mlp"\n[data]\ndataset = "mnist"\n')
    said = rampart("data", "show", str(file))
    assert said.code == 1
    assert "put mnist.npz" in said.err
    assert "unknown experiment" in rampart("data", "show", "nothing").err


@pytest.mark.parametrize(
    ("y", "problem"),
    [
        (torch.tensor([0, 12]), "data set 'own' of my-data==1: y has numbers from 0 to 12"),
        (torch.tensor([0.0, 1.0]), "data set 'own' of my-data==1: y is a tensor of torch.float32"),
        (KeyError("a"), "KeyError: 'a' (raised by 'own' of my-data==1)"),
    ],
)
def test_check_reports_wrong_samples_of_an_own_data_set(
    rampart: Rampart, forget_members: ForgetMembers, y: Any, problem: str
) -> None:
    class Own(Dataset):
        @property
        def shape(self) -> tuple[int, ...]:
            return (1,)

        @property
        def classes(self) -> int:
            return 10

        def load(self) -> Samples:
            if isinstance(y, Exception):
                raise y
            return Samples(torch.zeros(2, 1), y, 10)

    forget_members(datasets)
    datasets.register("own")(Own)
    Own.package = "my-data==1"
    said = rampart("data", "check", "own", "usps", "--json")
    assert [row["name"] for row in parsed(said, code=1)] == ["usps"]
    assert said.err.startswith(f"error: {problem}")
