"""After the last round: clients measure and keep final models; newcomers get customized ones.

Legend: D coordinates.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np
import pytest

from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.aggregator.state.stores import RunStores
from rampart_fl.shared.protocol.messages import Ticket
from tests.integration.in_process_federation import (
    FEDCAP,
    Hosted,
    Scripted,
    experiment,
    until,
    upload_of,
    vector,
)

NAMES = ["ada", "bob", "cleo"]
Host = Callable[..., Hosted]


def ask(hosted: Hosted, name: str, path: str, **headers: str) -> httpx.Response:
    """The answer to a client's GET request."""
    bearer = {"Authorization": f"Bearer {hosted.join(name).token}"}
    url = hosted.url + path if path.startswith("/") else hosted.path(path)
    return httpx.get(url, headers={**bearer, **headers}, timeout=30)


def test_clients_evaluate_and_may_download_the_final_models(host: Host) -> None:
    hosted = host(experiment(3, server=FEDCAP))
    clients = hosted.scripted(NAMES)
    status = hosted.wait()
    assert (status.status, status.phase) == ("finished", "done")
    last = hosted.record(1)
    assert status.models["global"] == last.models["global"]
    for name, client in clients.items():
        assert client.tickets[-1].kind == "evaluate"
        assert client.tickets[-1].models == {"model": last.customized[name]}
        done = hosted.last_ticket(name)
        assert done.kind == "done"
        assert done.models == {"model": last.customized[name], "global": last.models["global"]}
        # Models can be downloaded after the end, too, and match their digests.
        for digest in done.models.values():
            answer = ask(hosted, name, f"models/{digest}")
            assert hashlib.sha256(answer.content).hexdigest() == digest
            again = ask(hosted, name, f"models/{digest}", **{"If-None-Match": f'"{digest}"'})
            assert again.status_code == 304
        others = last.customized["bob" if name == "ada" else "ada"]
        assert ask(hosted, name, f"models/{others}").status_code == 403


def test_clients_that_join_after_the_end_wait_for_the_next_run(host: Host) -> None:
    hosted = host(experiment(2, rounds=1))
    hosted.scripted(NAMES[:2])
    hosted.wait()
    ticket = Ticket.model_validate_json(ask(hosted, "cleo", "/v1/ticket").content)
    assert (ticket.kind, ticket.run, ticket.models) == ("wait", "", {})
    assert ask(hosted, "cleo", "models/global").status_code == 403


def test_run_ends_without_the_evaluations_of_offline_clients(host: Host) -> None:
    hosted = host(experiment(2, rounds=1), offline_after=4.0, poll=2.0)
    hosted.scripted(["ada"])
    hosted.take_part("bob", Scripted("bob", hold=lambda ticket: ticket.kind == "evaluate"))
    hosted.wait("evaluating")
    until(hosted.run.evaluations)
    hosted.vanish("bob")
    hosted.wait()
    assert hosted.run.evaluations().keys() == {"ada"}


def test_customization_out_of_turn_mixes_the_models_of_similar_clients(host: Host) -> None:
    hosted = host(experiment(3, server=FEDCAP))
    clients = hosted.scripted(NAMES, hold=lambda ticket: ticket.kind == "evaluate")
    hosted.wait("evaluating")
    reference = hosted.model("reference")
    assert ask(hosted, "fay", "models/reference").status_code == 403
    reference_D = vector(reference).astype(np.float64)
    rows = {}
    for name, client in clients.items():
        started_D = vector(client.models[1]).astype(np.float64)
        rows[name] = started_D + client.update(1, "train", len(started_D)) - reference_D
    # An update in the direction of Bob's, and a little in that of Cleo's.
    update_D = rows["bob"] + 0.1 * rows["cleo"]
    found_D = vector(hosted.customize(upload_of(reference, update_D)))

    def cosine(row_D: np.ndarray) -> float:
        return float(row_D @ update_D / np.linalg.norm(row_D) / np.linalg.norm(update_D))

    shares = {name: np.exp(10 * cosine(row_D)) for name, row_D in rows.items()}
    total = sum(shares.values())
    assert shares["bob"] / total > 0.9
    expected_D = reference_D + sum(shares[name] / total * rows[name] for name in NAMES)
    np.testing.assert_allclose(found_D, expected_D, rtol=0, atol=1e-6)
    assert hosted.record(1).customized.keys() == set(NAMES)


def test_worker_survives_a_replayed_request_whose_update_was_deleted(host: Host) -> None:
    hosted = host(experiment(3, server=FEDCAP))
    hosted.scripted(NAMES, hold=lambda ticket: ticket.kind == "evaluate")
    hosted.wait("evaluating")
    update = upload_of(hosted.model("reference"))
    made = hosted.customize(update)
    blobs = Blobs(Path(hosted.settings.blobs) / hosted.settings.namespace / hosted.run.id)
    blobs.delete([hashlib.sha256(update).hexdigest()])

    async def forget(run: RunStores) -> None:
        answers = await run.state.redis.keys(run.keys.customization("*"))
        assert await run.state.redis.client.delete(*answers) == 1

    hosted.of_run(forget)  # As if an hour had passed.
    hosted.restart()
    assert hosted.customize(update) == made


class Bystander(Scripted):
    """Never finishes its first ticket."""

    async def work(self, ticket: Ticket, model: bytes) -> bytes:
        self.hold = lambda ticket: True
        return await super().work(ticket, model)


def test_heartbeats_determine_which_clients_are_online(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rampart_fl.shared.agent.loop.HEARTBEAT", 0.2)
    hosted = host(experiment(3), offline_after=3.0, poll=1.0)
    for name in NAMES:
        hosted.take_part(name, Bystander(name))
    hosted.wait("collecting", 0)
    gone = hosted.join("cleo").client_id
    hosted.vanish("cleo")

    def online() -> dict[str, bool]:
        return {client.client_id: client.online for client in hosted.run.members()}

    while (seen := online())["cleo"] or not (seen["ada"] and seen["bob"]):
        hosted.wait("collecting", 0)
    assert gone == "cleo"
    infos = {client.client_id: client for client in hosted.run.members()}
    assert infos["ada"].ticket is not None
    assert infos["ada"].ticket.kind == "train"
    assert hosted.run.status().online == 2
    assert hosted.run.status().clients == 3
    # Its next request brings it back online.
    ask(hosted, "cleo", "/v1/ticket")
    while not online()["cleo"]:
        hosted.wait("collecting", 0)


def test_clients_may_read_only_their_own_entry(host: Host) -> None:
    hosted = host(experiment(2))
    hosted.join("ada")
    hosted.join("bob")
    assert ask(hosted, "ada", "/v1/clients/ada").json()["client_id"] == "ada"
    assert ask(hosted, "ada", "/v1/clients/bob").status_code == 403
    assert ask(hosted, "ada", "/v1/clients").status_code == 403
    for path in ("rounds", "rounds/current", "evaluations", "events"):
        assert ask(hosted, "ada", path).status_code == 403, path
    assert ask(hosted, "ada", "models/global").status_code == 403, "it takes no part yet"
