"""The load of `crowd.py`: one process with many clients that follow the protocol as agents do.

Each client has one connection and sends one request at a time: it joins, accepts the run, waits for
a ticket with its model, uploads, and waits for the next ticket in the response to the upload. If a
response has the header `Retry-After`, the client repeats the request after that time. The process
reads its configuration as JSON from stdin, and writes one line of JSON to stdout for each event.
"""

import asyncio
import json
import secrets
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, cast

import httptools
import numpy as np
import uvloop

from benchmarks.idle_clients import perceptron
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.protocol.messages import Ticket
from rampart_fl.shared.runtime.tokens import token_hash

WAIT = 30
"""Seconds for which the aggregator may hold an answer, as for agents."""


def tell(event: str, **facts: Any) -> None:
    """Writes an event to stdout."""
    print(json.dumps({"event": event, "at": time.time(), **facts}), flush=True)


@dataclass
class Answer:
    """An HTTP answer."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)


class Connection(asyncio.Protocol):
    """One HTTP connection that carries one request at a time."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._answer = Answer()
        self._answered: asyncio.Future[Answer] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self._transport = None
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(exc or ConnectionResetError())

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser."""
        self._answer.headers[name.decode().lower()] = value.decode()

    def on_body(self, body: bytes) -> None:
        """Called by the parser."""
        self._answer.body += body

    def on_message_complete(self) -> None:
        """Called by the parser."""
        self._answer.status = self._parser.get_status_code()
        answer, self._answer = self._answer, Answer()
        self._parser = httptools.HttpResponseParser(self)
        assert self._answered is not None
        self._answered.set_result(answer)

    @property
    def lost(self) -> bool:
        """Whether the connection has ended."""
        return self._transport is None

    async def request(self, head: str, body: bytes = b"") -> Answer:
        """Sends a request and waits for its answer."""
        self._answered = asyncio.get_running_loop().create_future()
        assert self._transport is not None
        self._transport.write(head.encode())
        if body:
            self._transport.write(body)
        return await self._answered


class Crowd:
    """The data that all clients share: the port, the upload, and the counts of HTTP statuses.

    Args:
        port: the api's port on loopback.
        hidden: hidden units of the perceptron whose update is uploaded.
    """

    def __init__(self, port: int, hidden: int) -> None:
        self.port = port
        self.statuses = Counter[int]()
        spec = perceptron(hidden)
        vector_D = np.random.default_rng(7).standard_normal(spec.dim, np.float32)
        report = {"report": '{"samples": 100}'}
        self._upload = wire.encode(spec, vector_D * np.float32(1e-3), report)
        self.round = -1

    def upload(self, client: int, round_: int) -> bytes:
        """The update of a client in a round; no two updates have the same bytes."""
        return self._upload[:-8] + np.array([client, round_], np.float32).tobytes()

    def first_ticket(self, round_: int) -> None:
        """Writes an event when a client gets the first ticket of a round."""
        if round_ > self.round:
            self.round = round_
            tell("round", round=round_, statuses=dict(self.statuses))


class Client:
    """One client of the crowd."""

    def __init__(self, crowd: Crowd, number: int) -> None:
        self._crowd = crowd
        self._number = number
        self._token = secrets.token_urlsafe(32)
        self._connection: Connection | None = None

    async def ask(
        self, method: str, path: str, token: str, headers: str = "", body: bytes = b""
    ) -> Answer:
        """Sends a request; repeats it as long as the response has `Retry-After`."""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._crowd.port}\r\n"
            f"Authorization: Bearer {token}\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
        )
        while True:
            if self._connection is None or self._connection.lost:
                loop = asyncio.get_running_loop()
                _, self._connection = await loop.create_connection(
                    Connection, "127.0.0.1", self._crowd.port
                )
            try:
                answer = await self._connection.request(head, body)
            except OSError:
                self._crowd.statuses[0] += 1
                await asyncio.sleep(0.5)
                continue
            self._crowd.statuses[answer.status] += 1
            if answer.status < 400:
                return answer
            if answer.status not in (429, 503):
                raise SystemExit(f"{method} {path}: {answer.status} {bytes(answer.body)!r}")
            await asyncio.sleep(float(answer.headers.get("retry-after", 1)))

    async def join(self, join_token: str, run: str) -> None:
        """Registers, and accepts the run."""
        body = json.dumps({"token_hash": token_hash(self._token)}).encode()
        json_type = "Content-Type: application/json\r\n"
        await self.ask("POST", "/v1/clients", join_token, json_type, body)
        body = json.dumps({"accept": True, "reason": "", "slot": None}).encode()
        await self.ask("PUT", f"/v1/runs/{run}/acceptance", self._token, json_type, body)

    async def participate(self, run: str) -> None:
        """Uploads an update in every round that selects the client, until the run's end."""
        crowd, known, held = self._crowd, "", ""
        wish = f"Prefer: wait={WAIT}\r\nAccept: {wire.MEDIA_TYPE}\r\n"
        while True:
            headers = wish + (f"Rampart-Model: {held}\r\n" if held else "")
            match = f'If-None-Match: "{known}"\r\n' if known else ""
            answer = await self.ask("GET", f"/v1/ticket?run={run}", self._token, headers + match)
            ticket = read_ticket(answer)
            while ticket is not None and ticket.kind == "train":
                crowd.first_ticket(ticket.round)
                held = ticket.models["model"]
                headers = f"{wish}Rampart-Model: {held}\r\nContent-Type: {wire.MEDIA_TYPE}\r\n"
                path = f"/v1/runs/{run}/rounds/{ticket.round}/update"
                body = crowd.upload(self._number, ticket.round)
                answer = await self.ask("PUT", path, self._token, headers, body)
                known = ticket.model_copy(update={"kind": "wait", "models": {}}).etag
                more = wire.RECEIPT_HEADER.lower() in answer.headers
                ticket = read_ticket(answer) if more else None
            if ticket is not None:
                known = ticket.etag
                if ticket.kind == "evaluate":
                    path = f"/v1/runs/{run}/rounds/{ticket.round}/evaluation"
                    json_type = "Content-Type: application/json\r\n"
                    await self.ask("PUT", path, self._token, json_type, b'{"metrics": {}}')
                    known = ""
                elif ticket.kind in ("done", "evicted"):
                    return


def read_ticket(answer: Answer) -> Ticket | None:
    """The ticket in an answer's header or body; None if there is none."""
    if answer.status == 204:
        return None
    header = answer.headers.get(wire.TICKET_HEADER.lower())
    return Ticket.model_validate_json(bytes(answer.body) if header is None else header)


async def main() -> None:
    """Runs the clients that the configuration names."""
    given = json.loads(sys.stdin.readline())
    crowd, run = Crowd(given["port"], given["hidden"]), given["run"]
    clients = [Client(crowd, number) for number in range(len(given["tokens"]))]
    gate, began = asyncio.Semaphore(given["joining"]), time.perf_counter()

    async def join(client: Client, token: str) -> None:
        async with gate:
            await client.join(token, run)

    # The run waits for its last client, which joins once a line arrives on stdin.
    early = list(zip(clients, given["tokens"], strict=True))[:-1]
    await asyncio.gather(*(join(client, token) for client, token in early))
    tell("joined", seconds=time.perf_counter() - began)
    taking_part = [asyncio.create_task(client.participate(run)) for client, _ in early]
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, sys.stdin.readline)
    await clients[-1].join(given["tokens"][-1], run)
    taking_part.append(asyncio.create_task(clients[-1].participate(run)))
    await asyncio.gather(*taking_part)
    tell("end", statuses=dict(crowd.statuses))


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
