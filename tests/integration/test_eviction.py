"""How a federation over HTTP treats clients that its detector wants to evict."""

from collections.abc import Callable
from typing import Any

import pytest

from rampart_fl.services.console.connection.operator import OperatorRefused
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.protocol.messages import RoundRecord
from tests.integration.in_process_federation import FEDCAP, Hold, Hosted, experiment, until

NAMES = ["ada", "bob", "cleo"]
HOSTILE = ["mallory", "oscar"]
Host = Callable[..., Hosted]


def experiment_with(eviction: dict[str, Any], rounds: int = 5, **tables: Any) -> Experiment:
    """An experiment for five clients, two of which send updates with far too large norms."""
    detectors = [{"name": "norm_bound", "threshold": 5}]
    server = {**FEDCAP, "detectors": detectors, "eviction": eviction, **tables.pop("server", {})}
    return experiment(5, rounds, server=server, **tables)


def start(hosted: Hosted, hold: Hold, names: list[str] = HOSTILE) -> dict[str, Any]:
    """Starts all clients; the honest ones hold a round back."""
    clients = hosted.scripted(NAMES, hold=hold)
    return clients | hosted.scripted(names, scale=10.0)


def out(record: RoundRecord) -> dict[str, str]:
    """The decisions about all clients whose rows were left out."""
    return {v.client: v.decision for v in record.verdicts if v.decision != "accepted"}


def happened(hosted: Hosted, *types: str) -> list[tuple[str, str]]:
    """(type, client) of all events of these types, sorted."""
    events = hosted.of_run(lambda run: run.events.read("0-0", 0.01))
    return sorted((e.type, e.fields.get("client", "")) for e in events if e.type in types)


@pytest.mark.parametrize("policy", ["sync", "buffered"])
def test_clients_are_released_and_probed_after_their_quarantine(host: Host, policy: str) -> None:
    hosted = host(experiment_with({"mode": "quarantine", "rounds": 2}, policy=policy, buffer=1.0))
    clients = start(hosted, Hold(-1))
    hosted.wait()
    records = hosted.run.rounds()
    for record in records:
        back = record.round in (0, 3)
        assert record.participants == (NAMES + HOSTILE if back else NAMES)
        assert out(record) == (dict.fromkeys(HOSTILE, "quarantined") if back else {})
        assert record.quarantined == ([] if back else HOSTILE)
    assert records[3].probed == HOSTILE
    expected = [(0, "train"), (3, "probe"), (3, "train"), (4, "evaluate")]
    assert clients["mallory"].requests() == expected, "at the end it measures as all do"
    assert happened(hosted, "quarantined", "released") == [
        *(("quarantined", name) for name in sorted(2 * HOSTILE)),
        *(("released", name) for name in HOSTILE),
    ]
    assert hosted.run.status().evicted == []


def test_quarantined_clients_wait_and_operators_see_the_quarantine(host: Host) -> None:
    hosted, hold = host(experiment_with({"mode": "quarantine"}, rounds=2)), Hold(1)
    clients = start(hosted, hold)
    hosted.wait("collecting", 1)
    status = hosted.run.status()
    assert (status.quarantined, status.proposed, status.selected) == (HOSTILE, [], NAMES)
    shown = {client.client_id: client for client in hosted.run.members()}
    result = shown["mallory"]
    assert not result.evicted and result.eviction is None and result.ticket is None
    assert result.quarantine is not None
    assert (result.quarantine.until, result.quarantine.round) == (11, 0)
    assert "exceeds 5" in result.quarantine.reason
    assert shown["ada"].quarantine is None
    hold.on = False
    hosted.wait()
    assert [ticket.kind for ticket in clients["mallory"].tickets] == ["train", "evaluate"]
    assert {ticket.kind for ticket in clients["mallory"].idled} <= {"wait", "done"}


def test_operators_confirm_or_dismiss_proposed_evictions(host: Host) -> None:
    hosted, hold = host(experiment_with({"by": "operator", "patience": 7}, rounds=3)), Hold(1)
    clients = start(hosted, hold)
    hosted.wait("collecting", 1)
    proposals = hosted.run.proposals()
    assert [one.client_id for one in proposals] == HOSTILE
    for one in proposals:
        assert (one.round, one.until, one.detector, one.threshold) == (0, 8, "norm_bound", 5)
        assert one.score is not None and one.score > 5
    assert hosted.run.status().proposed == HOSTILE
    series = hosted.operator.request("GET", "/metrics").text
    assert "rampart_proposals 2.0" in series and "rampart_quarantined_clients 2.0" in series
    assert 'rampart_verdicts_total{decision="proposed"} 2.0' in series
    assert out(hosted.record(0)) == dict.fromkeys(HOSTILE, "proposed")

    assert hosted.run.decide("mallory", "confirm", "I looked").evicted
    assert hosted.last_ticket("mallory").kind == "evicted"
    back = hosted.run.decide("oscar", "dismiss", "its sensor")
    assert not back.evicted and back.quarantine is None
    assert hosted.run.proposals() == []
    for verb in ("confirm", "dismiss"):
        for name in ("ada", *HOSTILE):
            with pytest.raises(OperatorRefused, match=f"there is no proposal to evict {name}"):
                hosted.run.decide(name, verb, "again")
        with pytest.raises(OperatorRefused, match="no client nobody"):
            hosted.run.decide("nobody", verb, "x")
    hold.on = False
    hosted.wait()
    # Dismissed while round 1 was open, it is drawn for round 2, and proposed again.
    assert [record.participants for record in hosted.run.rounds()[1:]] == [
        NAMES,
        [*NAMES, "oscar"],
    ]
    assert out(hosted.record(2)) == {"oscar": "proposed"}
    assert hosted.run.proposals() == []
    with pytest.raises(OperatorRefused, match="no effect; `rampart evict --everywhere` bars the"):
        hosted.run.decide("oscar", "confirm", "too late")
    assert (2, "probe") in clients["oscar"].requests()
    assert happened(hosted, "proposed", "confirmed", "dismissed") == [
        ("confirmed", "mallory"),
        ("dismissed", "oscar"),
        *(("proposed", name) for name in [*HOSTILE, "oscar"]),
    ]
    assert hosted.run.status().evicted == ["mallory"]


def test_undecided_eviction_proposals_lapse(host: Host) -> None:
    hosted = host(experiment_with({"by": "operator", "patience": 1}, rounds=3))
    start(hosted, Hold(-1))
    hosted.wait()
    kinds = [sorted(set(out(record).values())) for record in hosted.run.rounds()]
    assert kinds == [["proposed"], [], ["proposed"]]
    assert happened(hosted, "dismissed") == [("dismissed", name) for name in HOSTILE]


def test_eviction_mode_can_be_switched_during_a_run(host: Host) -> None:
    hosted, hold = host(experiment_with({"mode": "observe"}, rounds=3)), Hold(1)
    start(hosted, hold)
    hosted.wait("collecting", 1)
    first = hosted.record(0)
    assert out(first) == {} and hosted.run.status().mode == "observe"
    assert {v.client: v.asked for v in first.verdicts if v.asked} == dict.fromkeys(
        HOSTILE, "evicted"
    )
    assert sorted(first.weights) == NAMES + HOSTILE, "they count"
    assert hosted.run.switch("evict", "it finds them").mode == "evict"
    hold.on = False
    hosted.wait()
    assert out(hosted.record(1)).keys() >= set(HOSTILE)
    assert {hosted.record(1).verdicts[k].decision for k in (3, 4)} == {"evicted"}
    assert hosted.run.status().evicted == HOSTILE
    assert [hosted.record(k).mode for k in (0, 1)] == ["observe", "evict"]
    assert happened(hosted, "mode") == [("mode", "")]
    with pytest.raises(OperatorRefused, match="finished"):
        hosted.run.switch("reject", "too late")


@pytest.mark.parametrize("f", [None, 1])
def test_detector_abstains_with_a_warning_beyond_the_eviction_budget(
    host: Host, f: int | None
) -> None:
    hosted, hold = host(experiment_with({}, rounds=3, server={"f": f})), Hold(1)
    hosted.scripted(NAMES[:2], hold=hold)
    hosted.scripted(["cleo", *HOSTILE], scale=10.0, hold=hold)
    hosted.wait("collecting", 1)
    barred, most = out(hosted.record(0)), 2 if f is None else f
    decisions = list(barred.values())
    assert (decisions.count("evicted"), decisions.count("abstained")) == (most, 3 - most)
    status = hosted.run.status()
    assert len(status.evicted) == most
    assert status.abstained == [c for c, decision in barred.items() if decision == "abstained"]
    assert f"would bar {3 - most} more" in status.warnings[-1]
    members = {member.client_id: member for member in hosted.run.members()}
    assert [c for c, member in members.items() if member.abstained] == status.abstained
    assert happened(hosted, "abstained") == [("abstained", "")]
    # An operator's eviction is not limited by the budget, but counts towards it.
    undecided = status.abstained[0]
    assert hosted.run.decide(undecided, "evict", "I see it").evicted
    assert not {m.client_id: m for m in hosted.run.members()}[undecided].abstained
    hold.on = False
    hosted.wait()
    assert undecided in hosted.run.status().evicted


def test_reinstating_a_client_restores_the_eviction_budget(host: Host) -> None:
    hosted, hold = host(experiment_with({}, rounds=3, server={"f": 1})), Hold(1)
    start(hosted, hold)
    hosted.wait("collecting", 1)
    (evicted,) = hosted.run.status().evicted
    (undecided,) = set(HOSTILE) - {evicted}
    hosted.vanish(evicted)
    hosted.run.decide(evicted, "reinstate", "a mistake")
    hosted.scripted([evicted], scale=10.0)
    hold.on = False
    hosted.wait()
    assert out(hosted.record(1)) == {undecided: "evicted"}
    assert out(hosted.record(2)) == {evicted: "abstained"}
    assert hosted.run.status().evicted == [undecided]


@pytest.mark.parametrize("paused", [False, True])
def test_evidence_starts_from_zero_after_a_quick_reinstatement(host: Host, paused: bool) -> None:
    """The client is evicted and reinstated while no round's result is computed."""
    detector = {"name": "robust_distance", "limit": 50.0}
    hosted, hold = host(experiment_with({}, rounds=6, server={"detectors": [detector]})), Hold(3)
    start(hosted, hold)
    hosted.wait("collecting", 3)
    if paused:
        hosted.run.steer("pause", "lunch")
    hosted.vanish("mallory")
    hosted.run.decide("mallory", "evict", "the wrong client")
    hosted.run.decide("mallory", "reinstate", "a mistake")
    hosted.scripted(["mallory"], scale=10.0)
    if paused:
        hosted.run.steer("resume", "back")
    hold.on = False
    hosted.wait()
    evidence = [
        [v.evidence for k in range(6) for v in hosted.record(k).verdicts if v.client == client]
        for client in HOSTILE
    ]
    mallorys, oscars = evidence
    assert oscars == sorted(oscars) and oscars[-1] > 4
    assert mallorys[:3] == oscars[:3]
    assert mallorys[-1] <= oscars[-1] - oscars[2]


def test_each_client_that_joins_later_raises_f_by_one(host: Host) -> None:
    joining = {"joining": {"clients": 4}, "collecting": {"count": {"min": 1.0}}}
    hosted, hold = host(experiment_with({}, rounds=3, server={"f": 0}, phases=joining)), Hold(1)
    hosted.scripted(NAMES, hold=hold)
    hosted.scripted(["mallory"], scale=10.0)
    hosted.wait("collecting", 1)
    assert out(hosted.record(0)) == {"mallory": "abstained"}
    hosted.scripted(["oscar"], scale=10.0)
    until(lambda: hosted.run.status().clients == 5)
    hold.on = False
    hosted.wait()
    assert sorted(out(hosted.record(1)).values()) == ["evicted"]
    assert len(hosted.run.status().evicted) == 1


def test_rounds_fail_while_every_client_is_quarantined(host: Host) -> None:
    eviction = {"mode": "quarantine", "rounds": 2, "bounded": False}
    hosted = host(experiment_with(eviction, rounds=4))
    hosted.scripted(NAMES + HOSTILE, scale=10.0)
    hosted.wait()
    records = hosted.run.rounds()
    assert [record.status for record in records] == ["published", "failed", "failed", "published"]
    assert records[1].reason == records[2].reason == "every client is quarantined"
    away = [record.quarantined for record in records]
    assert away == [[], sorted(NAMES + HOSTILE), sorted(NAMES + HOSTILE), []]


def test_quarantine_survives_an_aggregator_restart(host: Host) -> None:
    hosted, hold = host(experiment_with({"mode": "quarantine", "rounds": 2})), Hold(2)
    start(hosted, hold)
    hosted.wait("collecting", 2)
    hosted.restart()
    assert hosted.run.status().quarantined == HOSTILE
    hold.on = False
    hosted.wait()
    away = [record.quarantined for record in hosted.run.rounds()]
    assert away == [[], HOSTILE, HOSTILE, [], HOSTILE]
