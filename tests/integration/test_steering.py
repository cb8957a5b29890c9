"""What operators do to a running federation: evict, reinstate, pause, resume, stop."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from rampart_fl.services.aggregator.state.stores import RunStores
from rampart_fl.services.console.connection.operator import OperatorRefused
from tests.integration.in_process_federation import (
    FEDCAP,
    Hold,
    Hosted,
    collecting,
    experiment,
    until,
    upload_of,
)

NAMES = ["ada", "bob", "cleo"]
Host = Callable[..., Hosted]


def test_round_does_not_wait_for_a_client_evicted_during_it(host: Host) -> None:
    hosted, hold = host(experiment(3, rounds=4, server=FEDCAP)), Hold(1)
    clients = hosted.scripted(NAMES[:2])
    clients |= hosted.scripted(["cleo"], hold=hold)
    hosted.wait("collecting", 1)
    hosted.received("ada", "bob")
    info = hosted.run.decide("cleo", "evict", "a test")
    assert info.evicted
    assert info.eviction is not None
    assert info.eviction.reason == "a test"
    hosted.wait("collecting", 2)
    assert hosted.record(1).participants == ["ada", "bob"]
    assert hosted.run.status().evicted == ["cleo"]
    hold.on = False
    assert hosted.last_ticket("cleo").kind == "evicted"
    assert hosted.last_ticket("cleo").reason == "a test"
    hosted.wait()


def test_reinstated_client_is_probed_before_it_trains_again(host: Host) -> None:
    hosted, hold = host(experiment(3, rounds=4, server=FEDCAP)), Hold(1)
    hosted.scripted(NAMES[:1])
    hosted.scripted(NAMES[1:2], hold=hold)
    hosted.scripted(["cleo"], hold=hold)
    hosted.wait("collecting", 1)
    hosted.received("ada")
    hosted.run.decide("cleo", "evict", "a mistake")
    hosted.vanish("cleo")
    # Reinstated in the same round, it has no ticket: the round goes on without it.
    assert not hosted.run.decide("cleo", "reinstate", "a mistake").evicted
    again = hosted.scripted(["cleo"])["cleo"]
    hold.on = False
    hosted.wait()
    assert hosted.record(1).participants == ["ada", "bob"]
    assert again.requests() == [
        (2, "probe"),
        (2, "train"),
        (3, "train"),
        (3, "evaluate"),
    ]
    assert [hosted.record(number).probed for number in (1, 2, 3)] == [[], ["cleo"], []]


def test_an_update_counts_again_once_its_client_is_reinstated(host: Host) -> None:
    hosted, hold = host(experiment(3)), Hold(0)
    hosted.scripted(NAMES[:2])
    hosted.scripted(["cleo"], hold=hold)
    hosted.received("ada", "bob")
    hosted.run.decide("ada", "evict", "a mistake")
    hosted.run.decide("ada", "reinstate", "a mistake")
    hold.on = False
    hosted.wait("collecting", 1)
    assert hosted.record(0).participants == NAMES
    hosted.vanish("ada")
    hosted.scripted(["ada"])
    hosted.wait()


def test_a_round_whose_clients_are_all_evicted_fails_and_the_next_waits(host: Host) -> None:
    hosted, hold = host(experiment(2, rounds=2)), Hold(0)
    hosted.scripted(NAMES[:2], hold=hold)
    hosted.wait("collecting", 0)
    for name in NAMES[:2]:
        hosted.run.decide(name, "evict", "a test")
    hosted.wait("failed", 0)
    assert hosted.record(0).reason == "every client of this round was evicted"
    for name in NAMES[:2]:
        hosted.vanish(name)
    hosted.run.decide("bob", "reinstate", "a test")
    hosted.scripted(["bob"])
    hosted.wait()
    assert hosted.record(1).participants == ["bob"]


async def requested(run: RunStores) -> list[str]:
    """The names of all requests for customized models."""
    events = await run.events.read("0-0", 0)
    return [event.request for event in events if event.type == "customize"]


def test_pause_finishes_the_open_round_and_opens_no_further_round(host: Host) -> None:
    hosted, hold = host(experiment(2, rounds=3)), Hold(0)
    hosted.scripted(NAMES[:2], hold=hold)
    hosted.wait("collecting", 0)
    assert hosted.run.steer("pause").state == "paused"
    hold.on = False
    hosted.wait("published", 0)
    # What is asked for in a pause is answered: a customized model.
    model = hosted.model("global")
    assert hosted.customize(upload_of(model)) == model
    assert hosted.run.status().phase == "published"
    assert "rampart_paused 1.0" in hosted.operator.request("GET", "/metrics").text
    assert hosted.run.steer("resume").state == "running"
    assert "rampart_paused 0.0" in hosted.operator.request("GET", "/metrics").text
    hosted.wait()
    assert len(hosted.run.rounds()) == 3
    ended = hosted.operator.request("GET", "/metrics").text
    assert 'rampart_phase{phase="done"} 1.0' in ended
    assert 'rampart_redis_memory_bytes{part="used"}' in ended


def test_run_paused_before_its_first_round_waits_until_resumed(host: Host) -> None:
    hosted = host(experiment(2, rounds=1))
    hosted.wait("joining")
    hosted.run.steer("pause")
    hosted.scripted(NAMES[:2])
    model = hosted.model("global")
    for _ in range(2):
        assert hosted.customize(upload_of(model)) == model
    assert hosted.run.status().phase == "joining"
    requests = hosted.of_run(requested)
    assert [UUID(request).version for request in requests] == [4, 4]
    assert len(set(requests)) == 2
    hosted.run.steer("resume")
    hosted.wait()
    assert hosted.record(0).participants == NAMES[:2]


@pytest.mark.parametrize("paused", [False, True])
def test_clients_evaluate_the_last_published_models_after_a_stop(host: Host, paused: bool) -> None:
    hosted, hold = host(experiment(3, rounds=50, server=FEDCAP)), Hold(1)
    clients = hosted.scripted(NAMES, hold=hold)
    hosted.wait("collecting", 1)
    if paused:
        hosted.run.steer("pause")
        hold.on = False
        hosted.wait("published", 1)
    last = hosted.record(1 if paused else 0)
    assert hosted.run.steer("stop").state == "stopping"
    hold.on = False
    status = hosted.wait()
    assert status.status == "finished"
    records = hosted.run.rounds()
    assert len(records) == 2
    if not paused:
        assert (records[1].status, records[1].reason) == ("failed", "stopped by the operator")
    for client in clients.values():
        assert client.tickets[-1].kind == "evaluate"
        assert client.tickets[-1].models["model"] == last.customized[client.name]
    assert hosted.run.evaluations().keys() == set(NAMES)
    for verb in ("pause", "resume", "stop"):
        with pytest.raises(OperatorRefused, match="finished"):
            hosted.run.steer(verb)


@pytest.mark.parametrize("policy", [{}, {"policy": "buffered", "buffer": 3}], ids=["sync", "pool"])
def test_round_without_a_deadline_does_not_wait_for_a_client_whose_token_is_revoked(
    host: Host, policy: dict[str, Any]
) -> None:
    hosted = host(experiment(3, phases=collecting(max=None), **policy))
    hosted.scripted(NAMES[:2])
    hosted.scripted(["cleo"], hold=Hold(0))
    hosted.received("ada", "bob")
    hosted.vanish("cleo")
    hosted.operator.revoke("cleo")
    hosted.wait()
    assert hosted.run.info().state == "finished"
    assert [record.participants for record in hosted.run.rounds()] == 2 * [["ada", "bob"]]


def test_stopping_run_does_not_wait_for_a_client_whose_token_is_revoked(host: Host) -> None:
    hosted = host(experiment(3, rounds=50))
    hosted.scripted(NAMES[:2])
    hosted.scripted(["cleo"], hold=lambda ticket: ticket.kind == "evaluate")
    hosted.wait("collecting", 1)
    hosted.run.steer("stop")
    until(lambda: hosted.run.status().waits_for == "the evaluations of cleo")
    assert hosted.run.info().waits_for == "the evaluations of cleo"
    hosted.vanish("cleo")
    hosted.operator.revoke("cleo")
    hosted.wait()
    assert hosted.run.info().waits_for == ""
    assert set(hosted.run.evaluations()) == {"ada", "bob"}


def test_a_run_stopped_before_it_began_is_cancelled(host: Host) -> None:
    hosted = host(experiment(3, phases={**collecting(), "joining": {"clients": 3}}))
    clients = hosted.scripted(NAMES[:2])
    hosted.wait("joining")
    hosted.run.steer("stop")
    hosted.wait()
    assert hosted.run.rounds() == []
    assert hosted.run.info().state == "cancelled"
    assert all(client.requests() == [] for client in clients.values())
