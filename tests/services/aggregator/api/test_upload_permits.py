"""Slots for uploads: a bounded number, in order, and one for each client."""

import asyncio

import pytest

from rampart_fl.services.aggregator.api import upload_permits as module
from rampart_fl.services.aggregator.api.upload_permits import UploadPermits
from rampart_fl.services.aggregator.metrics import ProcessMetrics
from rampart_fl.shared.protocol.refusals import TooMany

pytestmark = pytest.mark.anyio


async def visit(upload_permits: UploadPermits, client: str) -> None:
    """Takes a slot and gives it back."""
    async with upload_permits.take(client):
        await asyncio.sleep(0)


async def test_second_simultaneous_upload_of_a_client_is_refused() -> None:
    upload_permits = UploadPermits(4, ProcessMetrics())
    async with upload_permits.take("a"):
        with pytest.raises(TooMany) as refusal:
            await visit(upload_permits, "a")
        assert refusal.value.retry_after == 1
        await visit(upload_permits, "b")
    await visit(upload_permits, "a")


async def test_slots_are_granted_in_order_and_released_after_errors() -> None:
    metrics = ProcessMetrics()
    upload_permits, order = UploadPermits(2, metrics), list[str]()
    release = asyncio.Event()

    async def upload(client: str) -> None:
        async with upload_permits.take(client):
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


async def test_client_that_stops_waiting_does_not_block_its_next_upload() -> None:
    upload_permits = UploadPermits(1, ProcessMetrics())
    async with upload_permits.take("a"):
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await visit(upload_permits, "b")
    await visit(upload_permits, "b")


@pytest.mark.slow
async def test_any_number_of_clients_may_wait_for_a_slot_but_not_forever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    upload_permits = UploadPermits(1, ProcessMetrics())
    async with upload_permits.take("a"):
        waiting = [visit(upload_permits, f"client-{number}") for number in range(5000)]
        result = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(refusal) for refusal in result} == {TooMany}
    monkeypatch.undo()
    async with upload_permits.take("a"):
        waiting_again = [
            asyncio.create_task(visit(upload_permits, f"client-{number}")) for number in range(5000)
        ]
        await asyncio.sleep(0)
    await asyncio.gather(*waiting_again)
