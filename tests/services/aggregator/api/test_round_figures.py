"""Tests that a round's figures agree with its record."""

from statistics import median

from rampart_fl.services.aggregator.api.round_figures import round_figures
from rampart_fl.shared.protocol.messages import RoundRecord, VerdictRecord


def verdict(client: str, decision: str) -> VerdictRecord:
    return VerdictRecord.model_validate(
        {"client": client, "decision": decision, "detector": "test", "score": 1.0}
        | {"threshold": 2.0, "reason": "because"}
    )


RECORD = RoundRecord(
    round=3,
    status="published",
    participants=["a", "b", "c"],
    missing=["d", "f"],
    late=["f"],
    verdicts=[verdict("a", "accepted"), verdict("b", "accepted"), verdict("c", "evicted")],
    weights={"a": 0.75, "b": 0.25},
    norms={"a": 1.0, "b": 2.0, "c": 9.0},
    staleness={"b": 2},
    metrics={
        "a": {"test_samples": 4, "correct_customized": 3, "correct_local": 4},
        "b": {"test_samples": 4, "correct_customized": 1},
    },
    opened_at=100.0,
    closed_at=102.5,
)
JSON = RECORD.model_dump_json().encode()


def test_figures_summarize_a_round_record() -> None:
    summary = round_figures(JSON)
    assert (summary.round, summary.status, summary.seconds) == (3, "published", 2.5)
    assert (summary.participants, summary.absent, summary.late) == (3, 2, 1)
    assert summary.decisions == {"accepted": 2, "evicted": 1}
    assert summary.accuracies == {"customized": 0.5, "local": 1.0}
    norms = [1.0, 2.0, 9.0]
    assert summary.norm_median == median(norms) == 2.0
    assert summary.norm_mad == median(abs(norm - 2.0) for norm in norms) == 1.0
    assert summary.client is None


def test_figures_describe_the_part_of_one_client() -> None:
    own = round_figures(JSON, "b").client
    assert own is not None
    assert own.verdict == RECORD.verdicts[1]
    assert (own.weight, own.norm, own.staleness, own.absent) == (0.25, 2.0, 2, False)
    assert own.metrics == RECORD.metrics["b"]
    absent = round_figures(JSON, "d").client
    assert absent is not None
    assert (absent.absent, absent.late) == (True, False)
    late = round_figures(JSON, "f").client
    assert late is not None
    assert (late.absent, late.late) == (True, True)
    assert absent.verdict is absent.norm is absent.weight is None
    nobody = round_figures(JSON, "e").client
    assert nobody is not None
    assert not nobody.absent


def test_a_round_without_updates_has_no_norms() -> None:
    empty = RoundRecord(round=0, status="failed").model_dump_json().encode()
    summary = round_figures(empty)
    assert (summary.norm_median, summary.norm_mad, summary.accuracies) == (None, None, {})
