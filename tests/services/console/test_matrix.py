"""`rampart matrix`: its cells, what it keeps, and what it shows."""

import builtins
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from services.console import matrix
from services.console.__main__ import app
from services.console.local import to_toml
from services.console.matrix import Cell, member, plan, run
from services.console.matrix_report import Matrix
from services.console.plots import NoPlots
from shared.errors import ConfigurationError, UnknownMember
from shared.experiment import Experiment

SMALL: dict[str, Any] = {
    "name": "small",
    "rounds": 2,
    "data": {"dataset": "digits", "clients": 5},
    "model": {"name": "mlp", "hidden": [4]},
    "training": {"epochs": 1, "batch_size": 100},
    "personalizer": {"name": "fedcap", "lambda": 0.7},
    "server": {"customizer": {"name": "fedcap", "alpha": 3, "phi": 0.2}, "sample_cap": 77},
    "attackers": [{"count": 2, "attack": "lie"}],
}
BASE = Experiment.from_tables(SMALL)


def test_a_cell_is_the_base_with_another_attack_and_another_defence() -> None:
    (cell,) = plan(BASE, ["ipm:epsilon=2"], ["nnm+trimmed_mean"], rounds=7)
    found = cell.experiment
    assert [(g.count, g.attack) for g in found.attackers] == [(2, {"name": "ipm", "epsilon": 2})]
    assert [stage["name"] for stage in found.server.rule] == ["nnm", "trimmed_mean"]
    assert (found.server.f, found.server.customizer["name"]) == (2, "global_model")
    assert (found.personalizer["name"], found.rounds) == ("none", 7)
    assert found.server.sample_cap == 77


def test_defences_keep_the_samples_that_the_server_holds() -> None:
    root = {"dataset": "digits", "size": 7}
    base = Experiment.from_tables(
        {**BASE.tables(), "server": {"root": root, "public": {"dataset": "noise", "size": 9}}}
    )
    (cell,) = plan(base, ["sign_flip"], ["fltrust"])
    server = cell.experiment.server
    assert server.root is not None and server.root.size == 7
    assert server.public is not None and server.public.size == 9


def test_fedcap_keeps_what_the_base_says_of_it() -> None:
    ours, paper = (c.experiment for c in plan(BASE, ["sign_flip"], ["fedcap", "fedcap-paper"]))
    assert (ours.server.eviction.bounded, paper.server.eviction.bounded) == (True, False)
    assert ours.server.f == paper.server.f == sum(group.count for group in ours.attackers)
    for found in (ours, paper):
        assert found.server.customizer == {"name": "fedcap", "alpha": 3, "phi": 0.2}
        assert found.personalizer == {"name": "fedcap", "lambda": 0.7}
    assert ours.server.detectors == [{"name": "robust_distance"}]
    assert paper.server.detectors == [{"name": "norm_bound", "threshold": 10}]
    plain = Experiment.from_tables({**SMALL, "personalizer": "none", "server": {}})
    (cell,) = plan(plain, ["none"], ["fedcap"])
    assert cell.experiment.server.customizer["alpha"] == 10
    assert cell.experiment.personalizer["name"] == "fedcap"


def test_in_the_row_without_attack_the_same_clients_are_measured_and_all_are_innocent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = plan(BASE, ["none", "lie"], ["fedcap"])
    assert cells[0].experiment.roles.count(None) == cells[1].experiment.roles.count(None) == 3
    figures = {"accuracy": 0.5, "dacc": 0.8, "fpr": 0.0, "fnr": 0.5, "evicted": ["client-04"]}
    monkeypatch.setattr(matrix, "simulated", lambda _: dict(figures))
    (_, calm), (_, attacked) = run(cells, tmp_path)
    assert calm == {**figures, "dacc": None, "fnr": None, "fpr": 0.2}
    assert attacked == figures


def test_a_backdoor_is_measured_where_it_attacks() -> None:
    data, model = plan(BASE, ["dba:width=3", "lie"], ["median"])
    assert data.experiment.evaluation.trigger == {"name": "dba", "width": 3}
    assert data.experiment.attackers[0].data_attack == {"name": "dba", "width": 3}
    assert model.experiment.evaluation.trigger is None


def test_without_attackers_in_the_base_three_of_ten_attack() -> None:
    benign = Experiment.from_tables({**SMALL, "attackers": []})
    (cell,) = plan(benign, ["sign_flip"], ["median"])
    assert (cell.experiment.attackers[0].count, cell.experiment.server.f) == (2, 2)


def test_wrong_names_are_refused_before_anything_runs() -> None:
    with pytest.raises(UnknownMember, match="label_flip"):
        plan(BASE, ["sing_flip"], ["median"])
    with pytest.raises(UnknownMember, match="trimmed_mean"):
        plan(BASE, ["sign_flip"], ["medain"])
    with pytest.raises(ConfigurationError, match="epsilon"):
        plan(BASE, ["ipm:epsilan=2"], ["median"])
    with pytest.raises(ConfigurationError, match="key=value"):
        member("lie:knows")
    with pytest.raises(ConfigurationError, match=r"krum needs .* n=5, f=2"):
        plan(BASE, ["sign_flip"], ["median", "krum"])


def test_seeds_are_runs_of_their_own() -> None:
    cells = plan(BASE, ["lie"], ["median"], seeds=3)
    assert [cell.experiment.seed for cell in cells] == [0, 1, 2]
    assert len({cell.file for cell in cells}) == 3
    assert Cell("lie", "median", cells[0].experiment, network=True).file not in cells[0].file


def test_what_ran_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell that fails is told, and tried again the next time."""
    ran: list[str] = []

    def pretend(experiment: Experiment) -> dict[str, Any]:
        ran.append(experiment.server.rule[0]["name"])
        if ran.count("trimmed_mean") == 1 and ran[-1] == "trimmed_mean":
            raise ConfigurationError("no luck")
        return {"accuracy": 0.5}

    monkeypatch.setattr(matrix, "simulated", pretend)
    cells = plan(BASE, ["lie"], ["median", "trimmed_mean"])
    assert [figures.get("accuracy") for _, figures in run(cells, tmp_path)] == [0.5, None]
    assert [figures["accuracy"] for _, figures in run(cells, tmp_path)] == [0.5, 0.5]
    assert ran == ["median", "trimmed_mean", "trimmed_mean"]


def filled() -> Matrix:
    """Two attacks on two defences, one of them over two seeds, one that failed."""
    found = Matrix(["none", "dba:width=3"], ["median", "fedcap"])
    for attack, defence, seed, accuracy, success in (
        ("none", "median", 0, 0.9, None),
        ("none", "fedcap", 0, 0.8, None),
        ("dba:width=3", "median", 0, 0.5, 1.0),
        ("dba:width=3", "median", 1, 0.7, 0.0),
    ):
        (cell,) = plan(BASE.model_copy(update={"seed": seed}), [attack], [defence])
        found.add(cell, {"accuracy": accuracy, "attack_success": success, "fpr": 0.0})
    (cell,) = plan(BASE, ["dba:width=3"], ["fedcap"])
    found.add(cell, {"error": "Broken: no luck"})
    return found


ABOUT = {"experiment": "small", "rounds": 2}


def test_tables_are_means_over_seeds_in_percent() -> None:
    text = filled().markdown(ABOUT)
    assert "| attack | median | fedcap |" in text
    assert (
        "## Accuracy\n\n| attack | median | fedcap |\n|---|---:|---:|\n| none | 90.0 | 80.0 |"
        in text
    )
    assert "| dba:width=3 | 60.0 | - |" in text
    assert "| dba:width=3 | 30.0 | - |" in text.partition("lost to the attack")[2]
    success = "| attack | median |\n|---|---:|\n| dba:width=3 | 50.0 |"
    assert success in text.partition("Attack success")[2]
    assert "| attack | fedcap |" in text.partition("FPR")[2], "only who has a detector is judged"
    assert "FNR" not in text
    assert "- dba:width=3 / fedcap: Broken: no luck" in text


def test_the_three_files(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    filled().write(tmp_path, ABOUT)
    cells = json.loads((tmp_path / "matrix.json").read_text())["cells"]
    assert [(c["attack"], c["defence"]) for c in cells][2] == ("dba:width=3", "median")
    assert cells[2]["accuracy"] == pytest.approx(0.6)
    assert [run["seed"] for run in cells[2]["runs"]] == [0, 1]
    assert (tmp_path / "matrix.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_tables_are_there_and_the_way_to_the_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = builtins.__import__

    def missing(name: str, *rest: Any, **options: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return original(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(NoPlots, match=r"rampart\[plots\]"):
        filled().write(tmp_path, ABOUT)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["matrix.json", "matrix.md"]


def test_the_command(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "small.toml"
    file.write_text(to_toml(BASE.tables()))
    words = ["matrix", "--experiment", str(file), "--attacks", "none,dba:width=3"]
    words += ["--defences", "median,fedcap", "--rounds", "1", "--output", str(tmp_path / "out")]
    result = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    assert result.exit_code == 0
    told = json.loads(result.stdout)
    assert [cell["attack_success"] is None for cell in told["cells"]] == [True, True, False, False]
    assert all(0 < cell["accuracy"] < 1 for cell in told["cells"])
    kept = sorted((tmp_path / "out" / "cells").iterdir())
    assert len(kept) == 4
    times = [path.stat().st_mtime_ns for path in kept]
    text = CliRunner().invoke(app, words, catch_exceptions=False).stdout
    assert text == (tmp_path / "out" / "matrix.md").read_text()
    assert [path.stat().st_mtime_ns for path in kept] == times
