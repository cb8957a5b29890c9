"""The participant's loop against a scripted aggregator: late, evicted, refused, done."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from rampart_fl.shared.agent import loop as module
from rampart_fl.shared.agent.activity_log import ActivityLog
from rampart_fl.shared.agent.client import AggregatorClient, RequestRefused
from rampart_fl.shared.agent.loop import participate
from rampart_fl.shared.errors import Unavailable
from rampart_fl.shared.protocol.messages import Ticket

pytestmark = pytest.mark.anyio
DIGEST = "d" * 64
RUN = "x-1"


class Script:
    """An aggregator that hands out these tickets of a run in turn, and refuses some uploads.

    Like the real aggregator, it does not repeat a ticket that the client names as known.
    """

    def __init__(
        self, *tickets: Ticket, refusals: dict[int, tuple[int, str]] | None = None
    ) -> None:
        self.tickets = list(tickets)
        self.refusals = refusals or {}
        self.log: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path == "/v1/ticket":
            assert request.url.params["run"] == RUN
            known = request.headers.get("if-none-match")
            if len(self.tickets) > 1 and known == f'"{self.tickets[0].etag}"':
                self.tickets.pop(0)
                return httpx.Response(204)
            return httpx.Response(200, json=self.tickets[0].model_dump(mode="json"))
        if path.startswith("/v1/runs/x-1/models/"):
            self.log.append(f"model {path[-1]}")
            return httpx.Response(200, content=path[-1].encode())
        if path == "/v1/heartbeat":
            self.log.append("alive")
            return httpx.Response(204)
        *_, round_, kind = path.split("/")
        self.log.append(f"{kind} {round_}")
        refused = self.refusals.pop(int(round_), None)
        self.tickets.pop(0)
        if refused is not None:
            body = {"type": f"urn:rampart:{refused[1]}", "detail": "", "title": "", "status": 0}
            return httpx.Response(refused[0], json=body)
        digest = hashlib.sha256(request.content).hexdigest()
        receipt = {"round": int(round_), "kind": kind, "client": "a", "digest": digest}
        if kind == "evaluation":
            receipt["metrics"] = json.loads(request.content)["metrics"]
        return httpx.Response(200, json=receipt)


class Worker:
    """A participant that records its tickets."""

    def __init__(self) -> None:
        self.log: list[str] = []

    async def work(self, ticket: Ticket, model: bytes) -> bytes:
        self.log.append(f"{ticket.kind} {ticket.round} from {model.decode()}")
        return b"bytes"

    async def evaluate(self, ticket: Ticket, model: bytes) -> dict[str, float]:
        self.log.append(f"evaluate {model.decode()}")
        return {"correct": 1.0}

    async def idle(self, ticket: Ticket) -> None:
        self.log.append(f"{ticket.kind} {ticket.reason}".strip())


def ticket(round_: int, kind: str, model: str = "0", reason: str = "") -> Ticket:
    models = {"model": model * 64} if kind in ("train", "probe", "evaluate") else {}
    return Ticket.model_validate(
        {"run": RUN, "round": round_, "kind": kind, "models": models, "experiment": DIGEST}
        | {"reason": reason}
    )


async def run(script: Script, worker: Worker | None = None) -> tuple[Ticket, list[str]]:
    connection, worker = AggregatorClient("http://test", "t" * 43), worker or Worker()
    await connection.close()
    connection.http = httpx.AsyncClient(
        base_url="http://test", transport=httpx.MockTransport(script)
    )
    try:
        return await participate(connection, worker, "a", RUN), worker.log
    finally:
        await connection.close()


class Collector(Worker):
    """A participant that uses the other models of its tickets."""

    async def receive(self, ticket: Ticket, others: Mapping[str, bytes]) -> None:
        received = ", ".join(f"{name} {model.decode()}" for name, model in sorted(others.items()))
        self.log.append(f"receives {received}")


def script_with_peers() -> Script:
    models = {"model": "0" * 64, "peer_00": "1" * 64, "peer_01": "2" * 64, "peer_02": "1" * 64}
    return Script(ticket(0, "train").model_copy(update={"models": models}), ticket(1, "done"))


async def test_peer_models_are_received_before_training() -> None:
    script = script_with_peers()
    _, log = await run(script, Collector())
    assert log == ["receives peer_00 1, peer_01 2, peer_02 1", "train 0 from 0", "done"]
    assert sorted(script.log) == ["model 0", "model 1", "model 2", "update 0"]


async def test_unused_peer_models_are_not_downloaded() -> None:
    script = script_with_peers()
    _, log = await run(script)
    assert log == ["train 0 from 0", "done"]
    assert script.log == ["model 0", "update 0"]


async def test_client_follows_all_tickets_and_reuses_downloaded_models() -> None:
    script = Script(
        ticket(0, "wait"),
        ticket(0, "train"),
        ticket(1, "probe", "1"),
        ticket(1, "train", "2"),
        ticket(2, "train", "2"),
        ticket(2, "evaluate", "3"),
        ticket(2, "done"),
    )
    last, log = await run(script)
    assert last.kind == "done"
    assert log == [
        "wait",
        "train 0 from 0",
        "probe 1 from 1",
        "train 1 from 2",
        "train 2 from 2",
        "evaluate 3",
        "done",
    ]
    assert script.log == [
        "model 0",
        "update 0",
        "model 1",
        "probe 1",
        "model 2",
        "update 1",
        "update 2",
        "model 3",
        "evaluation 2",
    ], "a model that is there already is not loaded again"


@pytest.mark.parametrize("refusal", [(410, "late"), (409, "no-ticket")])
async def test_late_client_continues_with_the_next_ticket(refusal: tuple[int, str]) -> None:
    script = Script(
        ticket(0, "train"), ticket(1, "train"), ticket(1, "done"), refusals={0: refusal}
    )
    last, log = await run(script)
    assert last.kind == "done"
    assert log == ["train 0 from 0", "train 1 from 0", "done"]


async def test_evicted_client_learns_the_reason_and_stops() -> None:
    script = Script(
        ticket(3, "train"), ticket(3, "evicted", reason="too far"), refusals={3: (403, "evicted")}
    )
    last, log = await run(script)
    assert (last.kind, last.reason) == ("evicted", "too far")
    assert log == ["train 3 from 0", "evicted too far"]


async def test_unknown_token_ends_the_loop() -> None:
    def unknown(_: httpx.Request) -> httpx.Response:
        body = {"type": "urn:rampart:unauthorized", "detail": "", "title": "", "status": 401}
        return httpx.Response(401, json=body)

    connection: Any = AggregatorClient("http://test", "t" * 43)
    await connection.close()
    connection.http = httpx.AsyncClient(
        base_url="http://test", transport=httpx.MockTransport(unknown)
    )
    with pytest.raises(RequestRefused, match="unauthorized"):
        await participate(connection, Worker(), "a", RUN)
    await connection.close()


async def test_heartbeats_are_sent_during_training(monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    monkeypatch.setattr(module, "HEARTBEAT", 0.01)
    script = Script(ticket(0, "train"), ticket(0, "done"))

    async def work(self: Worker, ticket: Ticket, model: bytes) -> bytes:
        while script.log.count("alive") < 2:
            await asyncio.sleep(0.005)
        return b"bytes"

    monkeypatch.setattr(Worker, "work", work)
    last, _ = await run(script)
    assert last.kind == "done"


async def test_heartbeats_continue_after_the_aggregator_was_unreachable(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import asyncio

    monkeypatch.setattr(module, "HEARTBEAT", 0.01)
    script, beats = Script(ticket(0, "train"), ticket(0, "done")), list[int]()

    async def heartbeat(_: AggregatorClient) -> None:
        beats.append(len(beats))
        if len(beats) == 1:
            raise Unavailable("no answer for 60 s")

    async def work(self: Worker, ticket: Ticket, model: bytes) -> bytes:
        async with asyncio.timeout(5):
            while len(beats) < 3:
                await asyncio.sleep(0.005)
        return b"bytes"

    monkeypatch.setattr(AggregatorClient, "heartbeat", heartbeat)
    monkeypatch.setattr(Worker, "work", work)
    last, _ = await run(script)
    assert last.kind == "done"
    assert "heartbeat failed: no answer for 60 s" in caplog.text


async def test_loop_ends_if_the_run_is_deleted() -> None:
    other = Ticket(run="x-2", kind="offer", experiment=DIGEST)
    last, log = await run(Script(ticket(0, "train"), other))
    assert (last, log) == (other, ["train 0 from 0"])


async def test_a_client_that_is_barred_during_a_run_tells_its_participant() -> None:
    barred = Ticket(kind="evicted", reason="by the operator")
    last, log = await run(Script(ticket(0, "train"), barred))
    assert (last, log) == (barred, ["train 0 from 0", "evicted by the operator"])


async def test_uploads_are_logged_before_they_are_sent(tmp_path: Path) -> None:
    script, activity = Script(ticket(0, "train"), ticket(0, "done")), ActivityLog(tmp_path)

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "PUT":
            (noted,) = activity.entries()
            assert (noted["what"], noted["run"], noted["round"]) == ("sending", RUN, 0)
        return script(request)

    connection = AggregatorClient("http://test", "t" * 43)
    await connection.close()
    connection.http = httpx.AsyncClient(
        base_url="http://test", transport=httpx.MockTransport(answer)
    )
    await participate(connection, Worker(), "a", RUN, activity)
    await connection.close()
    assert script.log == ["model 0", "update 0"]


async def test_error_of_a_participant_names_the_member_whose_code_raised_it() -> None:
    class Broken(Worker):
        async def work(self, ticket: Ticket, model: bytes) -> bytes:
            error = KeyError("a")
            error.add_note("raised by 'own' of my-package==1")
            raise error

    with pytest.raises(module.ParticipantError) as caught:
        await run(Script(ticket(0, "train")), Broken())
    assert str(caught.value) == "KeyError: 'a' (raised by 'own' of my-package==1)"
