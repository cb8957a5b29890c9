"""The pool that a command line selects, and options that are incompatible."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rampart_fl.services.console.studies.pools import ProcessPool, ThreadPool, pool

Rampart = Callable[..., Any]
SWEEP = """
name = "small"
rounds = 1
[data]
dataset = "digits"
clients = 3
samples = 20
[model]
name = "mlp"
hidden = [4]
[training]
epochs = 1
[sweep]
seeds = [1, 2]
server.learning_rate = [0.5, 1.0]
"""


@pytest.fixture
def sweep(tmp_path: Path) -> str:
    path = tmp_path / "sweep.toml"
    path.write_text(SWEEP)
    return str(path)


def test_pool_uses_processes_unless_threads_are_requested() -> None:
    for threads, kind in ((False, ProcessPool), (True, ThreadPool)):
        chosen = pool(2, threads=threads)
        assert chosen is not None
        with chosen() as executor:
            assert isinstance(executor, kind)


def test_missing_ray_is_reported_with_the_install_command(
    sweep: str, rampart: Rampart, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    said = rampart("simulate", sweep, "--ray", "local")
    assert said.code == 1
    assert "Ray is not installed: run pip install 'rampart-fl[ray]'" in said.err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--ray", "local", "--jobs", "2"], "give either --jobs 2 or --ray"),
        (["--gpus", "0.5"], "add --ray"),
        (["--ray", "local", "--gpus", "0.5"], "give --device cuda"),
        (["--ray", "local", "--device", "cuda:1"], "Ray chooses the GPU"),
    ],
)
def test_incompatible_options_are_refused(
    sweep: str, rampart: Rampart, words: list[str], reason: str
) -> None:
    said = rampart("simulate", sweep, *words)
    assert said.code == 1 and reason in said.err


def test_commands_without_parallel_runs_refuse_pool_options(rampart: Rampart) -> None:
    said = rampart("simulate", "digits-benign", "--ray", "local")
    assert said.code == 1 and "digits-benign has no [sweep]" in said.err
    said = rampart("matrix", "digits-matrix", "--network", "--ray", "local")
    assert said.code == 1 and "--network runs the real services on this machine" in said.err
    said = rampart("certify", "digits-benign", "--jobs", "2")
    assert said.code == 2 and "groups train in one federation" in said.err
