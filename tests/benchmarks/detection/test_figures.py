"""The figures of a run equal values computed by hand."""

from benchmarks.detection.figures import figures
from benchmarks.detection.loud import eviction
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.figures.final import sides
from rampart_fl.shared.protocol.messages import RoundRecord, VerdictRecord

EXPERIMENT = Experiment.from_tables(
    {
        "name": "five",
        "data": {"dataset": "digits", "clients": 5},
        "model": "mlp",
        "attackers": [{"count": 2, "attack": "sign_flip"}],
    }
)
HONEST, HOSTILE = sides(EXPERIMENT)


def record(number: int, **decisions: str) -> RoundRecord:
    """A round in which all honest clients report metrics and the named clients are judged."""
    names = {
        "a": HONEST[0],
        "b": HONEST[1],
        "c": HONEST[2],
        "x": HOSTILE[0],
        "y": HOSTILE[1],
    }
    verdicts = [
        VerdictRecord(
            client=names[key],
            decision=decision,
            detector="d",
            score=None,
            threshold=None,
            reason=f"{key} {number}",
        )
        for key, decision in decisions.items()
    ]
    metrics = {name: {"test_samples": 4.0, "correct_local": 3.0} for name in HONEST}
    return RoundRecord(
        round=number,
        status="published",
        participants=[names[key] for key in decisions],
        verdicts=verdicts,
        metrics=metrics,
    )


def test_run_figures_match_hand_computed_shares_and_evictions() -> None:
    records = [
        record(0, a="accepted", b="rejected", x="accepted", y="accepted"),
        record(1, a="accepted", b="accepted", c="accepted", x="evicted"),
        record(2, a="evicted", b="accepted"),
    ]
    result = figures(EXPERIMENT, records, [HONEST[0], HOSTILE[0]])
    assert (result["honest"], result["hostile"], result["honest_evicted"]) == (3, 2, 1)
    assert result["fnr"] == 0.5
    assert (result["silenced"], result["client_rounds"]) == (1, 7)
    assert result["worst_silenced"] == 1 / 3
    assert result["local"] == 0.75
    assert result["received"] is None
    assert [(e["hostile"], e["round"], e["own"], e["reason"]) for e in result["evictions"]] == [
        (True, 1, 2, "x 1"),
        (False, 2, 3, "a 2"),
    ]


def test_median_eviction_round_includes_attackers_never_evicted() -> None:
    early = {"hostile": 3, "evictions": [_eviction("x", 1), _eviction("y", 4)]}
    late = {"hostile": 2, "evictions": [_eviction("x", 9), _eviction("honest", 0, hostile=False)]}
    assert eviction([early], "round") == "5"
    assert eviction([early, late], "round") == "10"
    assert eviction([late, late, {"hostile": 1, "evictions": []}], "round") == "never"


def _eviction(client: str, round_: int, hostile: bool = True) -> dict[str, object]:
    return {"client": client, "hostile": hostile, "round": round_, "own": round_ + 1}
