"""Small models are read once for all simultaneous requests; the cache never exceeds its size."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import pytest

from rampart_fl.services.aggregator.api import recent_models
from rampart_fl.services.aggregator.api.recent_models import RecentModels
from rampart_fl.services.aggregator.state.blobs import Blobs

pytestmark = pytest.mark.anyio


class Counted(Blobs):
    """Blobs that count how often each is opened."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.opened: list[str] = []

    def open(self, digest: str) -> BinaryIO:
        self.opened.append(digest)
        return super().open(digest)


@pytest.fixture
def blobs(tmp_path: Path) -> Counted:
    return Counted(tmp_path)


@pytest.fixture
def models(blobs: Counted) -> Iterator[RecentModels]:
    with ThreadPoolExecutor(2) as disk:
        yield RecentModels(blobs, disk)


async def test_simultaneous_requests_share_one_read(models: RecentModels, blobs: Counted) -> None:
    digest = blobs.put(b"model")
    assert await asyncio.gather(*(models.read(digest) for _ in range(9))) == [b"model"] * 9
    assert await models.read(digest) == b"model"
    assert blobs.opened == [digest]


async def test_large_model_is_not_cached(
    models: RecentModels, blobs: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent_models, "LARGEST", 4)
    large, small = blobs.put(b"large"), blobs.put(b"tiny")
    assert [await models.read(large), await models.read(large)] == [None, None]
    assert await models.read(small) == b"tiny"
    assert blobs.opened == [large, large, small]


async def test_cache_is_bounded_and_evicts_the_least_recently_used_model(
    models: RecentModels, blobs: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent_models, "TOTAL", 10)
    first, second, third = (blobs.put(bytes([n]) * 5) for n in range(3))
    for digest in (first, second, first, third):  # The second is the least recently used.
        await models.read(digest)
    blobs.opened.clear()
    for digest in (first, third, second):
        await models.read(digest)
    assert blobs.opened == [second]


async def test_missing_model_is_read_again_on_the_next_request(
    models: RecentModels, blobs: Counted
) -> None:
    with pytest.raises(FileNotFoundError):
        await models.read("a" * 64)
    blobs.path("a" * 64).parent.mkdir()
    blobs.path("a" * 64).write_bytes(b"late")
    assert await models.read("a" * 64) == b"late"


async def test_cancelled_request_does_not_cancel_the_shared_read(
    models: RecentModels, blobs: Counted
) -> None:
    digest = blobs.put(b"model")
    leaving, staying = (asyncio.create_task(models.read(digest)) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    assert await staying == b"model"
    with pytest.raises(asyncio.CancelledError):
        await leaving
