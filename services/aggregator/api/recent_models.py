"""Caches recently requested models in memory, because clients often request the same model."""

import asyncio
from collections import OrderedDict
from concurrent.futures import Executor

from rampart_fl.services.aggregator.state.blobs import Blobs

LARGEST = 8 << 20
"""Maximum size of a cached model in bytes; a larger model is sent from its file in pieces."""
TOTAL = LARGEST
"""Maximum total size of the cached models in bytes."""


class RecentModels:
    """A cache that reads a small model once, even if several requests need it at the same time.

    Args:
        blobs: the store of the models.
        disk: threads that read the models.
    """

    def __init__(self, blobs: Blobs, disk: Executor) -> None:
        self._blobs = blobs
        self._disk = disk
        self._held: OrderedDict[str, asyncio.Future[bytes | None]] = OrderedDict()
        self._size = 0

    async def read(self, digest: str) -> bytes | None:
        """A model's bytes; None if the model is too large for the cache.

        Raises:
            FileNotFoundError: there is no such model.
        """
        reading = self._held.get(digest)
        if reading is None:
            run = asyncio.get_running_loop().run_in_executor
            reading = self._held[digest] = run(self._disk, self._read, digest)
            reading.add_done_callback(lambda read: self._keep(digest, read))
        else:
            self._held.move_to_end(digest)
        # Other requests may wait for the same read, so the read must go on even if this request
        # ends.
        return await asyncio.shield(reading)

    def _read(self, digest: str) -> bytes | None:
        with self._blobs.open(digest) as file:
            if file.seek(0, 2) > LARGEST:
                return None
            file.seek(0)
            return file.read()

    def _keep(self, digest: str, read: "asyncio.Future[bytes | None]") -> None:
        if read.cancelled() or read.exception() is not None or read.result() is None:
            del self._held[digest]
            return
        self._size += len(read.result() or b"")
        while self._size > TOTAL:
            oldest = next(name for name, held in self._held.items() if held.done())
            self._size -= len(self._held.pop(oldest).result() or b"")
