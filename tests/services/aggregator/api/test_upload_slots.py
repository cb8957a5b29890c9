"""Slots for uploads: a bounded number, in order, one for each client; slow uploads yield."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from rampart_fl.services.aggregator.api import upload_slots as module
from rampart_fl.services.aggregator.api.upload_slots import UploadSlots
from rampart_fl.services.aggregator.metrics import Metrics
from rampart_fl.shared.protocol.refusals import SlowBody, TooMany

pytestmark = pytest.mark.anyio


async def drip(pieces: int, pause: float = 0.005) -> AsyncIterator[bytes]:
    """The chunks of a slow upload."""
    for _ in range(pieces):
        await asyncio.sleep(pause)
        yield b"x"


async def upload(
    upload_slots: UploadSlots, client: str, body: AsyncIterator[bytes], disk: float = 0.0
) -> int:
    """Reads an upload and writes it to a disk; returns its number of bytes."""
    size = 0
    async with upload_slots.take(client, body) as chunks:
        async for chunk in chunks:
            size += len(chunk)
            await asyncio.sleep(disk)
    return size


async def visit(upload_slots: UploadSlots, client: str) -> None:
    """Takes a slot and gives it back."""
    async with upload_slots.take(client, drip(0)):
        await asyncio.sleep(0)


async def test_second_simultaneous_upload_of_a_client_is_refused() -> None:
    upload_slots = UploadSlots(4, Metrics())
    async with upload_slots.take("a", drip(0)):
        with pytest.raises(TooMany) as refusal:
            await visit(upload_slots, "a")
        assert refusal.value.retry_after == 1
        await visit(upload_slots, "b")
    await visit(upload_slots, "a")


async def test_slots_are_granted_in_order_and_released_after_errors() -> None:
    metrics = Metrics()
    upload_slots, order = UploadSlots(2, metrics), list[str]()
    release = asyncio.Event()

    async def upload(client: str) -> None:
        async with upload_slots.take(client, drip(0)):
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
    upload_slots = UploadSlots(1, Metrics())
    async with upload_slots.take("a", drip(0)):
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await visit(upload_slots, "b")
    await visit(upload_slots, "b")


async def test_any_number_of_clients_may_wait_for_a_slot_but_not_forever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    upload_slots = UploadSlots(1, Metrics())
    async with upload_slots.take("a", drip(0)):
        waiting = [visit(upload_slots, f"client-{number}") for number in range(5000)]
        result = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(refusal) for refusal in result} == {TooMany}
    monkeypatch.undo()
    async with upload_slots.take("a", drip(0)):
        waiting_again = [
            asyncio.create_task(visit(upload_slots, f"client-{number}")) for number in range(5000)
        ]
        await asyncio.sleep(0)
    await asyncio.gather(*waiting_again)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots that an upload may keep for 20 ms, and for which an upload waits 300 ms."""
    monkeypatch.setattr(module, "HOLD", 0.02)
    monkeypatch.setattr(module, "PATIENCE", 0.3)


@pytest.mark.usefixtures("impatient")
async def test_slow_uploads_make_room_for_waiting_clients() -> None:
    upload_slots = UploadSlots(4, Metrics())
    slow = [asyncio.create_task(upload(upload_slots, name, drip(500))) for name in "abcd"]
    await asyncio.sleep(0.1)
    assert not any(task.done() for task in slow), "nobody waits, so nobody is ended"
    await visit(upload_slots, "e")
    ended = [task for task in slow if task.done()]
    assert len(ended) == 1, "one waiting client ends one upload"
    with pytest.raises(SlowBody, match="another client needs the slot"):
        await ended[0]
    await asyncio.gather(*(visit(upload_slots, name) for name in "fgh"))
    for task in slow:
        task.cancel()


@pytest.mark.usefixtures("impatient")
async def test_slow_clients_do_not_end_slow_uploads() -> None:
    upload_slots = UploadSlots(1, Metrics())
    assert await upload(upload_slots, "a", drip(20)) == 20
    other = asyncio.create_task(upload(upload_slots, "b", drip(500)))
    await asyncio.sleep(0)
    with pytest.raises(TooMany):
        await visit(upload_slots, "a")
    other.cancel()
    await asyncio.wait([other])
    await visit(upload_slots, "a")
    other = asyncio.create_task(upload(upload_slots, "b", drip(500)))
    await asyncio.sleep(0)
    await visit(upload_slots, "a")  # Its latest upload was not slow.
    with pytest.raises(SlowBody):
        await other


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("pause", "disk", "fast"), [(0.0, 0.005, module.FAST), (0.005, 0.0, 2)])
async def test_fast_uploads_and_uploads_to_a_slow_disk_keep_their_slots(
    monkeypatch: pytest.MonkeyPatch, pause: float, disk: float, fast: int
) -> None:
    monkeypatch.setattr(module, "FAST", fast)
    upload_slots = UploadSlots(1, Metrics())
    reading = asyncio.create_task(upload(upload_slots, "a", drip(20, pause), disk))
    await asyncio.sleep(0)
    await visit(upload_slots, "b")
    assert await reading == 20
