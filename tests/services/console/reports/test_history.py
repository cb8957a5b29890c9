"""The history of one client over several runs, against hand-written entries."""

from typing import Any

from rampart_fl.services.console.reports.history import RunParticipation, part
from rampart_fl.shared.protocol.clients import BarReason, Quarantine
from rampart_fl.shared.protocol.runs import Member, RunInfo
from rampart_fl.shared.protocol.stored_rounds import VerdictMatrix


def run(name: str, **facts: Any) -> RunInfo:
    fields = {
        "run": name,
        "name": name[:-2],
        "experiment": "5f" * 32,
        "submission": name,
        "submitted_at": 0.0,
        "submitted_by": "ada",
        "rounds": 3,
        "state": "finished",
    }
    return RunInfo.model_validate({**fields, **facts})


def test_decisions_on_a_client_are_counted_over_all_rounds() -> None:
    member = Member(
        client_id="b",
        accept=True,
        slot=1,
        eviction=BarReason(reason="far away", detector="operator", at=1.0),
    )
    matrix = VerdictMatrix(
        clients=["a", "b"], rounds=[0, 1, 2, 3], decisions=["aaaa", "ar.e"], scores=""
    )
    later = VerdictMatrix(clients=["b"], rounds=[4, 5], decisions=["ae"], scores="")
    assert part(run("digits-1"), member, [matrix, later], "b") == RunParticipation(
        run="digits-1",
        state="finished",
        answer="accepted",
        slot=1,
        decisions={"accepted": 2, "evicted": 2, "rejected": 1},
        barred="far away",
        reason="",
    )


def test_history_shows_why_a_client_declined_or_is_quarantined() -> None:
    no = Member(client_id="b", accept=False, reason="model 'cnn': this client trains only mlp")
    declined = part(run("digits-2", state="running"), no, [], "b")
    assert (declined.answer, declined.slot, declined.reason) == ("declined", None, no.reason)
    waits = Quarantine(
        reason="waits",
        detector="norm_bound",
        at=1.0,
        score=6.0,
        threshold=5.0,
        evidence=0.0,
        round=2,
        kind="quarantine",
        until=4,
    )
    away = Member(client_id="b", quarantine=waits)
    result = part(run("digits-4"), away, [], "b")
    assert (result.answer, result.decisions, result.barred) == ("", {}, "waits")
