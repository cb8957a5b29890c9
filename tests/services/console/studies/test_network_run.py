"""Cells over HTTP: a cell whose process died continues its run, or starts anew if it had ended."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rampart_fl.services.console.connection.operator import Operator
from rampart_fl.services.console.studies.matrix_cells import MatrixCell, plan
from rampart_fl.services.console.studies.matrix_runs import figures_of, run
from rampart_fl.services.console.studies.network_run import run_or_continue, run_services
from rampart_fl.shared.errors import RampartError
from rampart_fl.shared.experiment import Experiment
from tests.services.console.studies.test_batch import until

pytestmark = pytest.mark.processes
RUN = """
import json, sys
from pathlib import Path
from rampart_fl.services.console.studies.network_run import run_or_continue
from rampart_fl.shared.experiment import Experiment

run_or_continue(Experiment.from_tables(json.loads(sys.argv[1])), Path(sys.argv[2]))
"""


def cell(rounds: int, rule: str = "median") -> MatrixCell:
    tables: dict[str, Any] = {
        "name": "small",
        "rounds": rounds,
        "data": {"dataset": "digits", "clients": 4, "samples": 60},
        "model": {"name": "mlp", "hidden": [4]},
        "training": {"epochs": 1, "batch_size": 100},
        "attackers": [{"count": 1, "attack": "sign_flip"}],
    }
    base = Experiment.from_tables(tables)
    return plan(base, ["sign_flip"], [rule], network=True)[0]


def test_ended_run_without_results_starts_anew(tmp_path: Path) -> None:
    """The process of the study died after the end of the run, before it stored the results."""
    one = cell(rounds=1)
    runs = tmp_path / "runs" / one.file.removesuffix(".json")
    lost = run_services(one.experiment, runs)
    result = figures_of(one, tmp_path)
    assert "error" not in result, result
    for figures in (lost, result):
        del figures["seconds"]
    assert result == lost
    assert not runs.exists()


def test_run_that_failed_has_no_results_and_starts_anew(tmp_path: Path, quitter: str) -> None:
    one = cell(rounds=3, rule=quitter)
    for _ in range(2):
        ((_, result),) = run([one], tmp_path)
        assert result.keys() == {"error"}
        reason = "did not finish (failed): RuntimeError: one round is enough"
        assert f"RunUnfinished: run small-1 {reason}" in result["error"]
    assert not (tmp_path / "cells").exists()


@pytest.mark.long
def test_cell_that_was_killed_during_its_run_continues_this_run(tmp_path: Path) -> None:
    one, folder = cell(rounds=30), tmp_path / "cell"
    command = [sys.executable, "-c", RUN, json.dumps(one.experiment.tables()), str(folder)]
    with subprocess.Popen(command) as owner:
        try:
            until(lambda: round_of(folder) >= 2)
        finally:
            owner.send_signal(signal.SIGKILL)
    result = run_or_continue(one.experiment, folder)
    assert result["rounds"] == 30
    assert (
        "RAMPART_EXPERIMENT was already submitted" in (folder / "logs/aggregator.log").read_text()
    )


def round_of(folder: Path) -> int:
    """The round of the run whose federation lives in the folder; -1 if no run has started."""
    try:
        known = json.loads((folder / "console.json").read_text())
        operator = Operator(known["url"], known["token"])
        try:
            return operator.run().status().round
        finally:
            operator.close()
    except (FileNotFoundError, RampartError, ValueError):
        return -1
