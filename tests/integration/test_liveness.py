"""What still works while a round is decided, and while a thousand requests wait."""

import asyncio
import re
import resource
import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from rampart_fl.services.aggregator.worker.round_engine import RoundEngine
from rampart_fl.shared.protocol.messages import Ticket
from tests.integration.in_process_federation import FEDCAP, Hold, Hosted, collecting, experiment

NAMES = ["ada", "bob", "cleo"]
Host = Callable[..., Hosted]


def test_api_stays_responsive_during_aggregation(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = threading.Event(), threading.Event()
    close_round = RoundEngine.close_round

    def slowly(*args: Any) -> Any:
        begun.set()
        assert may_end.wait(60)
        return close_round(*args)

    monkeypatch.setattr(RoundEngine, "close_round", slowly)
    hosted = host(experiment(3, rounds=1, server=FEDCAP))
    hosted.scripted(NAMES)
    try:
        assert begun.wait(60)
        status = hosted.run.status()
        assert (status.phase, status.received) == ("aggregating", NAMES)
        assert len(hosted.operator.clients()) == 3
        assert hosted.run.rounds() == []
        for path in ("/healthz", "/readyz", "/metrics"):
            assert httpx.get(hosted.url + path, timeout=30).status_code == 200
        bearer = {"Authorization": f"Bearer {hosted.join('ada').token}"}
        ticket = httpx.get(f"{hosted.url}/v1/ticket", headers=bearer, timeout=30)
        assert Ticket.model_validate_json(ticket.content).kind == "wait"
        assert httpx.post(f"{hosted.url}/v1/heartbeat", headers=bearer).status_code == 204
        assert not hosted.run.decide("ada", "reinstate", "a test").evicted
        hosted.run.steer("pause")
        assert hosted.run.status().phase == "aggregating"
        hosted.run.steer("resume")
    finally:
        may_end.set()
    hosted.wait()


def test_a_thousand_waiting_requests_all_get_the_next_ticket(host: Host) -> None:
    watchers, polls = [f"watcher-{number:02d}" for number in range(63)], 16
    allow_open_files(4 * len(watchers) * polls)
    phases = {**collecting(2, most=2), "joining": {"clients": 65}}
    hosted, hold = host(experiment(65, phases=phases)), Hold(0)
    hosted.scripted(NAMES[:2], hold=hold)
    tokens = hosted.join_quickly(watchers)
    hosted.wait("collecting", 0)

    def waiting() -> int:
        text = httpx.get(f"{hosted.url}/metrics", timeout=60).text
        (matches,) = re.findall(r"^rampart_waiting_requests ([0-9.]+)", text, re.MULTILINE)
        return int(float(matches))

    async def get(token: str, known: str = "") -> tuple[str, Ticket]:
        reader, writer = await asyncio.open_connection("127.0.0.1", hosted.settings.port)
        head = f"GET /v1/ticket HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        head += f"Prefer: wait=60\r\nIf-None-Match: {known}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode())
        answer = (await reader.read()).decode()
        writer.close()
        await writer.wait_closed()
        assert answer.startswith("HTTP/1.1 200"), answer
        (etag,) = re.findall(r'^etag: ("\w+")', answer, re.MULTILINE)
        return etag, Ticket.model_validate_json(answer.partition("\r\n\r\n")[2])

    async def watch(token: str) -> list[tuple[str, Ticket]]:
        known, _ = await get(token)
        return await asyncio.gather(*(get(token, known) for _ in range(polls)))

    async def watch_all() -> list[Ticket]:
        answers = asyncio.gather(*(watch(token) for token in tokens))
        while await asyncio.to_thread(waiting) < len(watchers) * polls:
            await asyncio.sleep(0.05)
        hold.on = False
        return [ticket for some in await answers for _, ticket in some]

    tickets = hosted.soon(watch_all())
    assert len(tickets) == len(watchers) * polls
    assert {ticket.round for ticket in tickets} == {1}
    assert hosted.record(0).participants == NAMES[:2]


def allow_open_files(count: int) -> None:
    """Raises this process's limit of open files; it holds both ends of every connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"a process may have {hard} open files here, {count} are needed")
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
