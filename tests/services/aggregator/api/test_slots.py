"""Places for uploads: a bounded number, in order, one for each client."""

import asyncio

import pytest

from rampart_fl.services.aggregator.api import slots as module
from rampart_fl.services.aggregator.api.slots import Slots
from rampart_fl.services.aggregator.metrics import Metrics
from rampart_fl.shared.protocol.refusals import TooMany

pytestmark = pytest.mark.anyio


async def visit(slots: Slots, client: str) -> None:
    """Takes a place and gives it back."""
    async with slots.take(client):
        await asyncio.sleep(0)


async def test_a_client_has_one_place() -> None:
    slots = Slots(4, Metrics())
    async with slots.take("a"):
        with pytest.raises(TooMany) as refusal:
            await visit(slots, "a")
        assert refusal.value.retry_after == 1
        await visit(slots, "b")
    await visit(slots, "a")


async def test_places_are_given_in_order_and_back_after_errors() -> None:
    metrics = Metrics()
    slots, order = Slots(2, metrics), list[str]()
    release = asyncio.Event()

    async def upload(client: str) -> None:
        async with slots.take(client):
            order.append(client)
            await release.wait()
            raise OSError

    uploads = [asyncio.create_task(upload(client)) for client in "abcd"]
    await asyncio.sleep(0.01)
    assert order == ["a", "b"]
    assert b"rampart_uploads_reading 2.0" in metrics.text()
    release.set()
    await asyncio.gather(*uploads, return_exceptions=True)
    assert order == ["a", "b", "c", "d"]
    assert b"rampart_uploads_reading 0.0" in metrics.text()


async def test_who_gives_up_waiting_leaves_no_trace() -> None:
    slots = Slots(1, Metrics())
    async with slots.take("a"):
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await visit(slots, "b")
    await visit(slots, "b")


async def test_the_queue_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUEUE", 1)
    slots = Slots(1, Metrics())
    async with slots.take("a"):
        waiting = asyncio.create_task(visit(slots, "b"))
        await asyncio.sleep(0)
        with pytest.raises(TooMany, match="wait already"):
            await visit(slots, "c")
    await waiting
