"""How an agent finds its next run, against a scripted aggregator."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from rampart_fl.shared.agent import membership
from rampart_fl.shared.agent.client import AggregatorClient
from rampart_fl.shared.agent.membership import next_run
from rampart_fl.shared.protocol.messages import Ticket

pytestmark = pytest.mark.anyio
DIGEST = "d" * 64


def ticket(kind: str, run: str = "x-1", **fields: Any) -> Ticket:
    return Ticket.model_validate({"kind": kind, "run": run, "experiment": DIGEST, **fields})


class Script:
    """An aggregator that hands out these tickets in turn, each until the client knows it."""

    def __init__(self, *tickets: Ticket, refused: int | None = None) -> None:
        self.tickets = list(tickets)
        self.refused = refused
        self.answers: list[dict[str, Any]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path == "/v1/ticket":
            assert "run" not in request.url.params
            known = request.headers.get("if-none-match")
            if len(self.tickets) > 1 and known == f'"{self.tickets[0].etag}"':
                self.tickets.pop(0)
                return httpx.Response(204)
            return httpx.Response(200, json=self.tickets[0].model_dump(mode="json"))
        run = path.split("/")[3]
        if path.endswith("/experiment"):
            return httpx.Response(200, json={"name": run})
        assert request.method == "PUT" and path.endswith("/acceptance")
        body = json.loads(request.content)
        self.answers.append({"run": run, **body})
        if self.refused is not None:
            problem = {"type": "urn:rampart:run-full", "detail": "full", "status": self.refused}
            return httpx.Response(self.refused, json={**problem, "title": ""})
        table = {"run": run, "client_id": "a", "accept": body["accept"]}
        return httpx.Response(200, json=table)


@asynccontextmanager
async def connected(
    answer: Callable[[httpx.Request], httpx.Response],
) -> AsyncIterator[AggregatorClient]:
    """A connection to an aggregator that answers like this."""
    connection = AggregatorClient("http://test", "t" * 43)
    await connection.close()
    connection.http = httpx.AsyncClient(
        base_url="http://test", transport=httpx.MockTransport(answer)
    )
    try:
        yield connection
    finally:
        await connection.close()


async def find(script: Script, last: Ticket | None = None) -> Ticket:
    async def answer(run: str, part: dict[str, Any]) -> tuple[bool, str, int | None]:
        assert part == {"name": run}
        return run == "x-1", "" if run == "x-1" else "too long", 3

    async with connected(script) as connection:
        return await next_run(connection, answer, "a", last)


async def test_accepted_offer_leads_to_a_ticket_of_its_run() -> None:
    script = Script(ticket("wait", ""), ticket("offer"), ticket("wait", ""), ticket("wait", slot=2))
    result = await find(script)
    assert (result.run, result.slot) == ("x-1", 2)
    assert script.answers == [{"run": "x-1", "accept": True, "reason": "", "slot": 3}]


async def test_client_does_not_wait_for_a_declined_run() -> None:
    script = Script(ticket("offer", "y-2"), ticket("wait", ""), ticket("train", slot=0))
    assert (await find(script)).kind == "train"
    assert script.answers == [{"run": "y-2", "accept": False, "reason": "too long", "slot": 3}]


async def test_eviction_ticket_of_the_former_run_is_skipped() -> None:
    """A client that was evicted from a run waits for the next run, or for its reinstatement."""
    evicted = ticket("evicted", slot=1)
    script = Script(evicted, ticket("train", slot=1, round=2))
    assert (await find(script, evicted)).round == 2
    assert script.answers == []


async def test_offer_that_was_the_last_ticket_is_answered() -> None:
    """The former run was deleted before the client heard of its end."""
    offer = ticket("offer", "x-1")
    script = Script(offer, ticket("wait", slot=2))
    assert (await find(script, offer)).slot == 2
    assert [answer["accept"] for answer in script.answers] == [True]


async def test_client_barred_in_its_former_run_stops() -> None:
    barred = ticket("evicted", "", reason="stolen")
    assert await find(Script(), barred) == barred


async def test_client_barred_from_the_federation_stops() -> None:
    result = await find(Script(ticket("offer"), ticket("evicted", "", reason="stolen")))
    assert (result.kind, result.run, result.reason) == ("evicted", "", "stolen")


async def test_client_continues_after_its_answer_is_refused() -> None:
    script = Script(ticket("offer"), ticket("offer", "x-3"), ticket("train", "x-3"), refused=409)
    assert (await find(script)).run == "x-3"
    assert [answer["run"] for answer in script.answers] == ["x-1", "x-3"]


async def test_a_client_that_does_not_train_says_in_every_request_that_it_is_away() -> None:
    """It thus counts as offline, so that rounds do not wait for it."""
    tickets = [ticket("wait", slot=1), ticket("train", slot=1, round=2), ticket("done", slot=1)]
    asked = list[tuple[str | None, str | None, dict[str, str]]]()

    def answer(request: httpx.Request) -> httpx.Response:
        headers = request.headers
        asked.append(
            (headers.get("if-none-match"), headers.get("prefer"), dict(request.url.params))
        )
        if len(asked) == 2:
            return httpx.Response(204)
        return httpx.Response(200, json=tickets[min(len(asked), 3) - 1].model_dump(mode="json"))

    async with connected(answer) as connection:
        result = await membership.sit_out(connection, ticket("train", slot=1))
    assert result.kind == "done"
    first, second = (f'"{one.etag}"' for one in (ticket("train", slot=1), tickets[0]))
    away = {"run": "x-1", "away": "true"}
    assert asked == [(known, "wait=30", away) for known in (first, second, second)]
