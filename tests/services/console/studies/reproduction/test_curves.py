"""The curves of a run, recomputed by hand from its records."""

from statistics import fmean

import pytest

from rampart_fl.services.console.studies.reproduction.curves import curves, of_side
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.figures.client_metrics import sides
from rampart_fl.shared.protocol.messages import RoundRecord, StageReport
from rampart_fl.shared.simulation import simulate


def test_norm_entropy_and_weight_are_summarized_per_side() -> None:
    record = RoundRecord(
        round=0,
        status="published",
        norms={"a": 1.0, "b": 3.0, "x": float("inf")},
        weights={"a": 0.5, "b": 0.3, "x": 0.2},
        reports=[
            StageReport(stage="nnm"),
            StageReport(stage="sdea", per_row={"entropy": {"a": 0.2, "b": 0.4, "x": 2.0}}),
        ],
    )
    assert of_side(record, ["a", "b"]) == pytest.approx(
        {"norm": 2.0, "entropy": 0.3, "weight": 0.8}
    )
    assert of_side(record, ["x"]) == {"norm": None, "entropy": 2.0, "weight": 0.2}
    empty = RoundRecord(round=0, status="failed")
    assert of_side(empty, ["a"]) == {"norm": None, "entropy": None, "weight": None}


def test_curves_equal_values_recomputed_from_the_records() -> None:
    tables = {
        "name": "two",
        "rounds": 2,
        "data": {"dataset": "digits", "clients": 5, "samples": 20, "reserved": 90},
        "model": {"name": "mlp", "hidden": [4]},
        "attackers": [{"count": 1, "attack": {"name": "model_replacement", "scale": 50}}],
        "server": {"rule": "median", "test": {"dataset": "digits", "size": 80}},
    }
    result = simulate(Experiment.from_tables(tables))
    lines = curves(result)
    honest, hostile = sides(result.experiment)
    for number, record in enumerate(result.records):
        mean = fmean(record.norms[client] for client in honest)
        assert lines["norm_honest"][number] == pytest.approx(mean, abs=1e-4)
        assert lines["norm_hostile"][number] == pytest.approx(record.norms[hostile[0]], abs=1e-4)
        share = record.tested["correct_customized"] / 80
        assert lines["accuracy_server"][number] == pytest.approx(share, abs=1e-4)
    assert "entropy_honest" not in lines and "attack_success" not in lines
