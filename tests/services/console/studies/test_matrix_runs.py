"""The runs of a matrix: stored results, failures, and metrics of special rows and columns."""

from pathlib import Path
from typing import Any

import pytest

from rampart_fl.services.console.studies import matrix_runs
from rampart_fl.services.console.studies.batch import run_simulation
from rampart_fl.services.console.studies.matrix_cells import MatrixCell, plan
from rampart_fl.services.console.studies.matrix_runs import follow, run
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from tests.services.console.studies.test_matrix_cells import BASE


def test_local_only_runs_once_for_all_attacks_with_the_same_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = plan(BASE, ["none", "ipm", "dba:width=3"], ["local_only"])
    ran: list[str] = []

    def counted(experiment: Experiment, device: str) -> dict[str, Any]:
        ran.append(experiment.digest())
        return run_simulation(experiment, device)

    monkeypatch.setattr(matrix_runs, "run_simulation", counted)
    table = {cell.attack: figures for cell, figures in run(cells, tmp_path)}
    assert len(ran) == len(set(ran)) == 2
    assert set(table) == {"none", "ipm", "dba:width=3"}
    for figures in table.values():
        assert figures["accuracy_local"] == figures["accuracy_personalized"] > 0
        assert figures["accuracy_customized"] is None
    success = table["dba:width=3"]
    assert success["attack_success_local"] == success["attack_success_personalized"] is not None
    assert success["attack_success_customized"] is None


def test_fine_tuned_equals_plain_averaging_after_local_training(tmp_path: Path) -> None:
    (_, tuned), (_, plain) = run(plan(BASE, ["lie"], ["fine_tuned", "weighted_mean"]), tmp_path)
    assert tuned["accuracy_personalized"] == tuned["accuracy_local"] == plain["accuracy_local"]
    assert tuned["accuracy_customized"] == plain["accuracy_customized"]
    assert plain["accuracy_personalized"] is None


def test_row_without_attack_measures_the_same_clients_and_counts_all_as_honest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = plan(BASE, ["none", "lie"], ["fedcap"])
    assert cells[0].experiment.roles.count(None) == cells[1].experiment.roles.count(None) == 3
    figures: dict[str, Any] = {"dacc": 0.8, "fpr": 0.0, "fnr": 0.5, "evicted": ["client-04"]}
    figures |= {"accuracy": 0.5, "error": 0.25}  # In estimation, the mean squared error.
    monkeypatch.setattr(matrix_runs, "run_simulation", lambda *_: dict(figures))
    (_, calm), (_, attacked) = run(cells, tmp_path)
    assert calm == {**figures, "dacc": None, "fnr": None, "fpr": 0.2}
    assert attacked == figures


def test_finished_cells_are_skipped_and_failed_cells_are_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed cell is reported, and runs again the next time."""
    ran: list[str] = []

    def pretend(experiment: Experiment, device: str) -> dict[str, Any]:
        ran.append(experiment.server.rule[0]["name"])
        if ran.count("trimmed_mean") == 1 and ran[-1] == "trimmed_mean":
            raise ConfigurationError("no luck")
        return {"accuracy": 0.5}

    monkeypatch.setattr(matrix_runs, "run_simulation", pretend)
    cells = plan(BASE, ["lie"], ["median", "trimmed_mean"])
    assert [figures.get("accuracy") for _, figures in run(cells, tmp_path)] == [0.5, None]
    assert [figures["accuracy"] for _, figures in run(cells, tmp_path)] == [0.5, 0.5]
    assert ran == ["median", "trimmed_mean", "trimmed_mean"]


def test_cached_cells_come_first_and_are_excluded_from_the_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(matrix_runs, "run_simulation", lambda *_: {"accuracy_local": 0.5})
    cells = plan(BASE, ["lie", "ipm"], ["median"], seeds=2)
    list(run(cells[2:], tmp_path))
    seen: list[MatrixCell] = []
    follow(cells, tmp_path, None, lambda cell, figures: seen.append(cell))
    assert seen == [*cells[2:], *cells[:2]]
    assert capsys.readouterr().err.splitlines() == [
        f"2 of 4 runs are already in {tmp_path / 'cells'}",
        "1/2 lie / median seed=0: accuracy_local 0.5",
        "2/2 ipm / median seed=0: accuracy_local 0.5",
    ]
