"""The figures of a run equal values computed by hand."""

from benchmarks.detection import report
from benchmarks.detection.figures import figures
from benchmarks.detection.loud import eviction, excluded
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.figures.client_metrics import sides
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
            asked="evicted" if decision == "abstained" else None,
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
    assert (result["hostile_excluded"], result["hostile_rounds"]) == (1, 3)
    assert result["local"] == 0.75
    assert result["received"] is None
    assert [(e["hostile"], e["round"], e["own"], e["reason"]) for e in result["evictions"]] == [
        (True, 1, 2, "x 1"),
        (False, 2, 3, "a 2"),
    ]


def test_requests_to_evict_honest_clients_count_even_if_they_evict_nobody() -> None:
    records = [
        record(0, a="abstained", b="accepted", x="evicted"),
        record(1, a="abstained", b="rejected", c="accepted", y="abstained"),
        record(2, a="accepted"),
    ]
    result = figures(EXPERIMENT, records, [HOSTILE[0]])
    assert (result["honest_evicted"], result["honest_asked"]) == (0, 1)
    assert (result["silenced"], result["client_rounds"]) == (3, 6)
    assert result["worst_silenced"] == 2 / 3


def test_requests_in_the_mode_observe_count() -> None:
    watched = record(0, a="accepted", b="accepted")
    seen = watched.verdicts[0].model_copy(update={"asked": "evicted"})
    watched = watched.model_copy(update={"verdicts": [seen, watched.verdicts[1]]})
    result = figures(EXPERIMENT, [watched], [])
    assert (result["honest_asked"], result["silenced"]) == (1, 0)


def test_honest_client_that_is_evicted_counts_as_requested() -> None:
    result = figures(EXPERIMENT, [record(0, a="evicted", x="accepted")], [HONEST[0]])
    assert (result["honest_evicted"], result["honest_asked"]) == (1, 1)


def test_requests_are_unknown_if_any_run_was_recorded_without_them() -> None:
    assert report.requests([{"honest_asked": 2}, {"honest_asked": 1}]) == "3"
    assert report.requests([{"honest_asked": 2}, {}]) == "-"


def test_updates_that_a_round_only_examines_are_not_excluded() -> None:
    drawn = record(0, a="rejected", x="rejected", y="accepted")
    summoned = record(1, a="rejected", x="rejected", y="evicted")
    summoned = summoned.model_copy(update={"examined": [HONEST[0], *HOSTILE]})
    result = figures(EXPERIMENT, [drawn, summoned], [HOSTILE[1]])
    assert (result["silenced"], result["client_rounds"], result["examined"]) == (1, 1, 1)
    assert (result["hostile_excluded"], result["hostile_rounds"]) == (1, 2)
    assert excluded([result]) == "50%"


def test_share_of_excluded_updates_is_unknown_if_any_run_did_not_count_them() -> None:
    assert excluded([{"hostile_excluded": 1, "hostile_rounds": 4}]) == "25%"
    assert excluded([{"hostile_excluded": 1, "hostile_rounds": 4}, {}]) == "-"


def test_median_eviction_round_includes_attackers_never_evicted() -> None:
    early = {"hostile": 3, "evictions": [_eviction("x", 1), _eviction("y", 4)]}
    late = {"hostile": 2, "evictions": [_eviction("x", 9), _eviction("honest", 0, hostile=False)]}
    assert eviction([early], "round") == "5"
    assert eviction([early, late], "round") == "10"
    assert eviction([late, late, {"hostile": 1, "evictions": []}], "round") == "never"


def _eviction(client: str, round_: int, hostile: bool = True) -> dict[str, object]:
    return {"client": client, "hostile": hostile, "round": round_, "own": round_ + 1}
