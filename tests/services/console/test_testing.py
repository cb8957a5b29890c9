"""One federation serves all tests of a session; each run is deleted before the next starts."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rampart_fl.services.console.connection.operator import OperatorRefused
from rampart_fl.services.console.launcher.servers import LocalServers
from rampart_fl.services.console.testing import RunningFederation, TestClients, dismiss
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.runtime.tokens import mint, token_hash
from tests.integration.in_process_federation import Hold, Scripted, experiment

pytestmark = pytest.mark.processes
NAMES = ["session-ada", "session-bob"]
Run = Callable[[Experiment], RunningFederation]


def test_abandoned_run_is_deleted_before_the_next_run_starts(
    rampart_run: Run, rampart_federation: LocalServers
) -> None:
    first = rampart_run(experiment(2, rounds=9))
    former = first.run.id
    for name in NAMES:
        first.take_part(name, Scripted(name, hold=Hold(1)))
    first.wait("collecting", 1)
    assert (rampart_federation.folder / "blobs/rampart" / former).exists()

    second = rampart_run(experiment(2, rounds=1))
    assert second.url == first.url
    assert [info.run for info in rampart_federation.operator.runs()] == [second.run.id]
    for name in NAMES:
        second.take_part(name, Scripted(name))
    second.wait()
    assert [record.participants for record in second.run.rounds()] == [NAMES]
    assert {client.client_id for client in second.operator.clients()} >= set(NAMES)


def test_agents_keep_their_identity_across_runs(
    rampart_run: Run, rampart_federation: LocalServers
) -> None:
    for _ in range(2):
        running = rampart_run(experiment(2, rounds=1, room=0, training={"epochs": 1}))
        running.start_clients()
        running.wait()
        names = running.experiment.client_names
        assert [record.participants for record in running.run.rounds()] == [names]


def test_waiting_for_a_queued_run_times_out_with_the_reason(
    rampart_run: Run, rampart_federation: LocalServers, tmp_path: Path
) -> None:
    """The aggregator refuses to give the status of a queued run, which has none yet."""
    first = rampart_run(experiment(2, rounds=1))
    operator = rampart_federation.operator
    queued = operator.run(operator.submit(experiment(2, rounds=1)).run)
    with pytest.raises(OperatorRefused, match="has not started"):
        queued.status()
    clients = TestClients(operator, tmp_path)
    clients.run = queued
    with clients, pytest.raises(TimeoutError, match=f"queued.*the end of {first.run.id}"):
        clients.wait(patience=0)
    queued.delete()


def test_dismiss_bars_clients_that_joined_by_themselves(
    rampart_federation: LocalServers,
) -> None:
    operator, token = rampart_federation.operator, mint()
    (join,) = operator.mint(["stranger"]).tokens
    body = {"token_hash": token_hash(token)}
    own = {"Authorization": f"Bearer {join}"}
    operator.request("POST", "/v1/clients", json=body, headers=own)
    bearer = {"Authorization": f"Bearer {token}"}
    operator.request("GET", "/v1/ticket", headers=bearer)
    for _ in range(2):
        dismiss(rampart_federation)
        ticket = operator.request("GET", "/v1/ticket", headers=bearer).json()
        assert (ticket["kind"], ticket["run"]) == ("evicted", "")
    entries = [entry for entry in operator.audit() if entry.target == "stranger"]
    assert [entry.reason for entry in entries] == ["the test is over"], "barred once"
