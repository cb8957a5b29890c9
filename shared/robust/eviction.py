"""Turns detectors' requests into decisions, according to the mode and a limit on barred clients."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import inf, isnan
from typing import cast

from rampart_fl.shared.experiment.eviction import Decision, Eviction, RequestedDecision, Standing
from rampart_fl.shared.robust.base import Rows, Verdict

SEVERITY = {"accepted": 0, "rejected": 1, "evicted": 2}
"""Severity of each decision that a detector may ask for; a higher number marks a more severe
decision."""


def worst(rows: Rows, verdicts: Sequence[Verdict]) -> tuple[Verdict, ...]:
    """Each client's most severe verdict, ordered by client id; ties go to the first verdict."""
    found: dict[str, Verdict] = {
        client: Verdict(client, "rejected", "finite", float("inf"), 0.0, "update is not finite")
        for client in rows.dropped
    }
    for client in rows.ids:
        found[client] = Verdict(client, "accepted", "none", 0.0, 0.0, "no detector objects")
    for verdict in verdicts:
        held = found[verdict.client]
        if held.detector == "none" or SEVERITY[verdict.decision] > SEVERITY[held.decision]:
            found[verdict.client] = verdict
    return tuple(found[client] for client in sorted(found))


def apply_policy(
    asked: Sequence[Verdict],
    dropped: Collection[str],
    standing: Standing,
    eviction: Eviction,
    f: int | None = None,
) -> tuple[Verdict, ...]:
    """The verdicts that take effect, in the order of the requested verdicts `asked`.

    If detectors request more evictions than the limit allows, the evictions with the most evidence
    are carried out, and the other requests become abstentions. Among requests with equal evidence,
    the request whose score is furthest from its threshold comes first. If both the evidence and the
    distances to the thresholds are equal, the request with the lowest client id comes first.

    Args:
        asked: the detectors' requests; each client's verdict is accepted, rejected or evicted.
        dropped: clients whose rows are not finite; these rows are left out in every mode.
        standing: which clients are in the federation, and which are barred.
        eviction: the experiment's settings.
        f: bound on the number of hostile clients; None if the experiment states no bound.

    >>> asked = [Verdict(c, "evicted", "test", 2.0, 1.0, "too far") for c in "ab"]
    >>> verdicts = apply_policy(asked, (), Standing(clients=3, founders=3), Eviction())
    >>> [verdict.decision for verdict in verdicts]
    ['evicted', 'abstained']
    >>> verdicts[1].reason
    'too far; left out of this round only: at most 1 of 3 may be barred'
    """
    mode = standing.mode or eviction.mode
    if mode == "observe":
        return tuple(_observed(verdict, verdict.client in dropped) for verdict in asked)
    if mode == "reject":
        return tuple(_done(v, "rejected") if v.decision == "evicted" else v for v in asked)
    barring = _barring(eviction, mode == "quarantine")
    most = standing.most(f)
    left = max(0, most - len(standing.barred)) if eviction.bounded else len(asked)
    wanted = sorted((v for v in asked if v.decision == "evicted"), key=_rank)
    barred = {verdict.client for verdict in wanted[:left]}
    held = f"left out of this round only: at most {most} of {standing.clients} may be barred"
    return tuple(
        verdict
        if verdict.decision != "evicted"
        else _done(verdict, *barring)
        if verdict.client in barred
        else _done(verdict, "abstained", held)
        for verdict in asked
    )


def _barring(eviction: Eviction, quarantine: bool) -> tuple[Decision, str]:
    """The decision on an eviction request within the limit, and the reason for this decision."""
    if quarantine:
        return "quarantined", f"out for {eviction.rounds} rounds"
    if eviction.by == "operator":
        return "proposed", ""
    return "evicted", ""


def _done(verdict: Verdict, decision: Decision, why: str = "") -> Verdict:
    """The verdict with the final decision in place of the requested decision."""
    if decision == verdict.decision:
        return verdict
    reason = f"{verdict.reason}; {why}" if why else verdict.reason
    # `verdict` still contains the decision that the detector requested.
    asked = cast(RequestedDecision, verdict.decision)
    return replace(verdict, decision=decision, asked=asked, reason=reason)


def _observed(verdict: Verdict, dropped: bool) -> Verdict:
    """The verdict in mode `observe`, which rejects only rows that are not finite."""
    return _done(verdict, "rejected" if dropped else "accepted", "observed only, without effect")


def _rank(verdict: Verdict) -> tuple[float, float, str]:
    beyond = abs(verdict.score - verdict.threshold)
    return -verdict.evidence, -(inf if isnan(beyond) else beyond), verdict.client
