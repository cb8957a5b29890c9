"""Impossible counts are refused in reports and evaluations; every honest count is accepted."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from rampart_fl.shared.attacks.base import Knowledge
from rampart_fl.shared.attacks.model import attacks
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.protocol.counts import wrong_counts
from rampart_fl.shared.protocol.messages import ClientReport, Evaluation, Receipt
from rampart_fl.shared.protocol.stored_rounds import StoredRound
from rampart_fl.shared.simulation import simulate

IMPOSSIBLE: list[tuple[dict[str, float], str]] = [
    ({"test_samples": 1, "correct_customized": 1e15}, "correct_customized is 1e+15; it must be"),
    ({"test_samples": 4, "correct_local": 4.5}, "correct_local is 4.5, but test_samples is 4"),
    ({"test_samples": 4, "correct_personalized": -1}, "correct_personalized is -1; it must be"),
    ({"test_samples": -199}, "test_samples is -199; it must be between 0 and 1000000000"),
    ({"test_samples": 1e9 + 1}, "test_samples is 1e.09; it must be between 0 and 1000000000"),
    ({"train_samples": -1}, "train_samples is -1; it must be"),
    ({"correct_customized": 2e9}, "correct_customized is 2e.09; it must be"),
    (
        {"test_samples": 9, "fooled_local": 3, "triggered_samples": 2},
        "fooled_local is 3, but trigg",
    ),
    ({"triggered_samples": -2}, "triggered_samples is -2; it must be"),
    ({"test_samples": 4, "correct_vote": 5}, "correct_vote is 5, but test_samples is 4"),
    ({"test_samples": 4, "certified_01": 5}, "certified_01 is 5, but test_samples is 4"),
]
POSSIBLE: list[dict[str, float]] = [
    {},
    {"test_samples": 0, "correct_customized": 0},
    {"test_samples": 1e9, "correct_customized": 1e9, "correct_local": 0},
    {"test_samples": 20, "correct_customized": 0.955 * 20, "accuracy": 0.955},
    {"correct_customized": 3},
    {"fooled_customized": 3, "test_samples": 2},
    {"loss_gap": -1e15, "error_local": 1e15, "weight_00": -1, "test_samples": 1},
]


@pytest.mark.parametrize(("metrics", "message"), IMPOSSIBLE)
def test_impossible_counts_are_refused(metrics: dict[str, float], message: str) -> None:
    with pytest.raises(ValidationError, match=message.replace("+", r"\+")):
        ClientReport(samples=1, metrics=metrics)
    with pytest.raises(ValidationError, match=message.replace("+", r"\+")):
        Evaluation.model_validate_json(json.dumps({"metrics": metrics}))


@pytest.mark.parametrize("metrics", POSSIBLE)
def test_possible_counts_and_other_numbers_are_accepted(metrics: dict[str, float]) -> None:
    assert ClientReport(samples=1, metrics=metrics).metrics == metrics
    assert Evaluation(metrics=metrics).metrics == metrics


def test_stored_records_with_impossible_counts_stay_readable() -> None:
    metrics = {"test_samples": -199.0, "correct_local": 1e15}
    record = StoredRound(round=0, status="published", metrics={"a": metrics})
    receipt = Receipt(round=0, kind="update", client="a", digest="0" * 64, metrics=metrics)
    assert StoredRound.model_validate_json(record.model_dump_json()) == record
    assert Receipt.model_validate_json(receipt.model_dump_json()) == receipt


def test_false_loss_gap_of_an_attack_is_accepted() -> None:
    attack = attacks.build("gap_inflation", gap=1e6)
    claimed = attack.report({"test_samples": 4, "loss_gap": 0.5}, Knowledge(4, 1))
    assert claimed["loss_gap"] == 1e6
    assert ClientReport(samples=1, metrics=claimed).metrics == claimed


@pytest.mark.parametrize(
    "tables",
    [
        {"personalizer": "apfl", "attackers": [{"count": 2, "data_attack": "label_flip"}]},
        {
            "attackers": [
                {"count": 2, "data_attack": {"name": "dba", "width": 3}},
                {"count": 1, "attack": "gap_inflation"},
            ]
        },
    ],
    ids=["personalizer", "triggers"],
)
def test_every_client_of_a_simulation_reports_possible_counts(tables: dict[str, Any]) -> None:
    experiment = Experiment.from_tables(
        {
            "name": "honest",
            "rounds": 2,
            "data": {"dataset": "digits", "clients": 6, "samples": 40},
            "model": {"name": "mlp", "hidden": []},
            "evaluation": {"trigger": {"name": "badnets", "size": 1, "target": 2}},
            **tables,
        }
    )
    result = simulate(experiment)
    for record in result.records:
        assert len(record.metrics) == 6
        for metrics in record.metrics.values():
            assert {"test_samples", "correct_local", "fooled_local"} <= metrics.keys()
            assert wrong_counts(metrics) == {}
