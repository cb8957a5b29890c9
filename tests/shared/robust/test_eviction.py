"""From detectors' requests to decisions: modes, the limit, and the order of evictions."""

import pytest

from rampart_fl.shared.experiment.eviction import Eviction, Mode, Standing
from rampart_fl.shared.robust import Verdict
from rampart_fl.shared.robust.base import Decision
from rampart_fl.shared.robust.eviction import apply_policy

NAMES = [f"c{k}" for k in range(10)]


def asks(**wanted: Decision) -> list[Verdict]:
    """One verdict for each of ten clients: accepted, except for the named clients."""
    return [
        Verdict(name, wanted.get(name, "accepted"), "test", 2.0, 1.0, "2 exceeds 1")
        for name in NAMES
    ]


def outcome(
    requests: list[Verdict],
    eviction: Eviction | None = None,
    standing: Standing | None = None,
    f: int | None = None,
    dropped: tuple[str, ...] = (),
) -> dict[str, Verdict]:
    verdicts = apply_policy(
        requests, dropped, standing or Standing(10, 10), eviction or Eviction(), f
    )
    assert [verdict.client for verdict in verdicts] == NAMES
    return {v.client: v for v in verdicts if v.decision != "accepted" or v.asked is not None}


def done(requests: list[Verdict], **options: object) -> dict[str, str]:
    return {c: v.decision for c, v in outcome(requests, **options).items()}


@pytest.mark.parametrize(
    ("eviction", "expected"),
    [
        (Eviction(mode="observe"), "accepted"),
        (Eviction(mode="reject"), "rejected"),
        (Eviction(mode="quarantine"), "quarantined"),
        (Eviction(by="operator"), "proposed"),
        (Eviction(), "evicted"),
    ],
)
def test_mode_determines_the_decision_on_a_requested_eviction(
    eviction: Eviction, expected: str
) -> None:
    requests = asks(c1="evicted", c2="rejected")
    verdicts = outcome(requests, eviction)
    assert verdicts["c1"].decision == expected
    assert verdicts["c1"].asked == (None if expected == "evicted" else "evicted")
    assert verdicts["c1"].reason.startswith("2 exceeds 1")
    observed = expected == "accepted"
    assert verdicts["c2"].decision == ("accepted" if observed else "rejected")
    assert verdicts["c2"].asked == ("rejected" if observed else None)
    assert verdicts.keys() == {"c1", "c2"}


def test_reasons_state_the_consequences() -> None:
    requests = asks(c1="evicted")
    for eviction, expected in (
        (Eviction(mode="observe"), "2 exceeds 1; observed only, without effect"),
        (Eviction(mode="quarantine", rounds=3), "2 exceeds 1; out for 3 rounds"),
        (Eviction(by="operator", patience=7), "2 exceeds 1"),
    ):
        assert outcome(requests, eviction)["c1"].reason == expected


def test_observe_mode_still_rejects_non_finite_rows() -> None:
    requests = asks(c1="evicted", c2="rejected", c3="evicted")
    verdicts = outcome(requests, Eviction(mode="observe"), dropped=("c1", "c2"))
    assert {c: (v.decision, v.asked) for c, v in verdicts.items()} == {
        "c1": ("rejected", "evicted"),
        "c2": ("rejected", None),
        "c3": ("accepted", "evicted"),
    }


@pytest.mark.parametrize("live", ["observe", "reject", "quarantine", "evict"])
def test_operator_s_mode_overrides_the_experiment_s_mode(live: Mode) -> None:
    standing = Standing(10, 10, mode=live)
    mine = outcome(asks(c1="evicted"), Eviction(mode="quarantine"), standing)
    alone = outcome(asks(c1="evicted"), Eviction(mode=live))
    assert mine == alone


@pytest.mark.parametrize(
    ("eviction", "barring"),
    [
        (Eviction(), "evicted"),
        (Eviction(by="operator"), "proposed"),
        (Eviction(mode="quarantine"), "quarantined"),
    ],
)
def test_fewer_than_half_are_barred_and_the_other_requests_become_abstentions(
    eviction: Eviction, barring: str
) -> None:
    everyone = asks(**dict.fromkeys(NAMES, "evicted"))
    verdicts = outcome(everyone, eviction)
    assert [verdicts[name].decision for name in NAMES] == [barring] * 4 + ["abstained"] * 6
    said = "2 exceeds 1; left out of this round only: at most 4 of 10 may be barred"
    assert verdicts["c9"].reason == said
    assert verdicts["c9"].asked == "evicted"


def test_limit_is_f_plus_one_per_late_joiner_but_fewer_than_half() -> None:
    everyone = asks(**dict.fromkeys(NAMES, "evicted"))
    for standing, f, expected in (
        (Standing(10, 10), 2, 2),
        (Standing(12, 10), 2, 4),
        (Standing(12, 10), 9, 5),
        (Standing(10, 10), 0, 0),
        (Standing(10, 10), None, 4),
    ):
        verdicts = list(done(everyone, standing=standing, f=f).values())
        assert verdicts.count("evicted") == expected
        assert verdicts.count("abstained") == 10 - expected


def test_barred_clients_use_up_the_limit_until_they_return() -> None:
    requests = asks(c1="evicted", c2="evicted")
    taken = Standing(10, 10, frozenset({"c7", "c8"}), frozenset({"c9"}))
    assert done(requests, standing=taken) == {"c1": "evicted", "c2": "abstained"}
    full = Standing(10, 10, frozenset({"c6", "c7", "c8"}), frozenset({"c9"}))
    assert done(requests, standing=full) == {"c1": "abstained", "c2": "abstained"}
    back = Standing(10, 10, frozenset({"c7", "c8"}))
    assert done(requests, standing=back) == {"c1": "evicted", "c2": "evicted"}


def test_no_client_is_evicted_if_an_operator_barred_more_than_the_limit() -> None:
    beyond = Standing(10, 10, frozenset(NAMES[3:]))
    assert done(asks(c1="evicted"), standing=beyond) == {"c1": "abstained"}


def test_evictions_are_ordered_by_evidence_then_excess_then_client_id() -> None:
    requests = [
        Verdict("c0", "evicted", "test", 2.0, 1.0, "", evidence=1.0),
        Verdict("c1", "evicted", "test", 9.0, 1.0, "", evidence=1.0),
        Verdict("c2", "evicted", "test", -7.0, 1.0, "", evidence=1.0),
        Verdict("c3", "evicted", "test", 2.0, 1.0, "", evidence=3.0),
        Verdict("c4", "evicted", "test", 2.0, 1.0, "", evidence=1.0),
        *asks()[5:],
    ]
    order = ["c3", "c1", "c2", "c0", "c4"]
    for f in range(5):
        verdicts = done(requests, f=f)
        assert {c for c, decision in verdicts.items() if decision == "evicted"} == set(order[:f])


def test_nan_score_is_evicted_first() -> None:
    requests = asks(c1="evicted")
    requests[5] = Verdict("c5", "evicted", "test", float("nan"), 1.0, "")
    assert done(requests, f=1) == {"c1": "abstained", "c5": "evicted"}


def test_all_requests_are_carried_out_if_the_limit_is_off() -> None:
    everyone = asks(**dict.fromkeys(NAMES, "evicted"))
    assert set(done(everyone, eviction=Eviction(bounded=False), f=1).values()) == {"evicted"}
