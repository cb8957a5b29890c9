"""The table, the labels and the plots of a sweep's points."""

import json
from pathlib import Path
from typing import Any

import pytest

from rampart_fl.services.console.studies import sweeps
from rampart_fl.services.console.studies.sweeps import headlines, label, panels, table, write
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.sweep import Sweep


def point(f: int, rule: Any, accuracy: float | None, spread: float | None = 0.1) -> dict[str, Any]:
    own = {} if spread is None else {"accuracy": spread}
    return {"f": f, "rule": rule, "accuracy": accuracy, "runs": 2, "spread": own}


RESULT: dict[str, Any] = {
    "experiment": "small",
    "axes": ["f", "rule"],
    "sweep": [
        point(0, "median", 0.5),
        point(0, ["nnm", {"name": "krum", "f": 1}], None, None),
        point(2, "median", 0.25, None),
        point(2, ["nnm", {"name": "krum", "f": 1}], 0.75),
    ],
}


def test_table_has_one_row_per_point() -> None:
    assert table(RESULT).splitlines() == [
        "f  rule           runs  accuracy",
        "0  median         2     0.5 ± 0.1",
        "0  nnm+krum(f=1)  2     -",
        "2  median         2     0.25",
        "2  nnm+krum(f=1)  2     0.75 ± 0.1",
    ]
    assert headlines(RESULT["sweep"]) == ["accuracy"]


def test_point_whose_runs_all_diverged_leaves_a_gap() -> None:
    measured: dict[str, Any] = {"rate": 0.1, "error": 2.5, "runs": 1, "spread": {}}
    diverged: dict[str, Any] = {"rate": 9.0, "runs": 1, "spread": {}}
    result = {"experiment": "means", "axes": ["rate"], "sweep": [measured, diverged]}
    assert [line.split()[-1] for line in table(result).splitlines()] == ["error", "2.5", "-"]
    assert panels(result).lines == {"error": {"error": [2.5, None]}}


def test_axis_values_have_short_labels() -> None:
    describe = [
        label(value) for value in (1, 0.25, "lie", [], {"name": "lie", "knows": "full"}, None)
    ]
    assert describe == ["1", "0.25", "lie", "none", "lie(knows=full)", "None"]


def test_values_that_differ_in_late_digits_stay_apart() -> None:
    rows = [{"rate": rate, "accuracy": rate, "runs": 1, "spread": {}} for rate in (0.5, 0.50000001)]
    drawn = panels({"axes": ["rate"], "sweep": rows})
    assert drawn.at == drawn.lines["accuracy"]["accuracy"] == [0.5, 0.50000001]


@pytest.mark.parametrize("rows", [RESULT["sweep"], RESULT["sweep"][:2]])
def test_curves_are_plotted_over_numbers_and_over_names(
    tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    """With two values of f, the x-axis shows f; with one value, the x-axis shows the rules."""
    pytest.importorskip("matplotlib")
    result = {**RESULT, "sweep": rows}
    write(result, tmp_path / "out")
    assert json.loads((tmp_path / "out/sweep.json").read_text()) == result
    assert (tmp_path / "out/sweep.png").read_bytes().startswith(b"\x89PNG")


def test_points_run_seed_by_seed_to_share_cached_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran = []

    def simulated(experiment: Experiment, *_: Any) -> dict[str, Any]:
        ran.append((experiment.seed, experiment.training.epochs))
        return {"accuracy": experiment.seed + experiment.training.epochs / 10, "seconds": 1.0}

    monkeypatch.setattr(sweeps, "run_simulation", simulated)
    axes = {"seeds": [5, 3], "training": {"epochs": [1, 2]}}
    definition = Sweep.of({**Experiment.load("digits-benign").tables(), "sweep": axes})
    rows = sweeps.sweep(definition)["sweep"]
    assert ran == [(5, 1), (5, 2), (3, 1), (3, 2)]
    assert [(row["epochs"], row["accuracy"], row["runs"]) for row in rows] == [
        (1, pytest.approx(4.1), 2),
        (2, pytest.approx(4.2), 2),
    ]
