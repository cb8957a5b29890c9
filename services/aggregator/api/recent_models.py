"""Models asked for lately, in memory: in a new round many clients ask for the same one."""

import asyncio
from collections import OrderedDict
from concurrent.futures import Executor

from rampart_fl.services.aggregator.state.blobs import Blobs

LARGEST = 8 << 20
"""Bytes of a model that is read whole; a larger one is sent from its file, piece by piece."""
TOTAL = LARGEST
"""Bytes of all that are kept."""


class RecentModels:
    """Reads each small model once for all who ask.

    Args:
        blobs: where models stand.
        disk: threads that read them.
    """

    def __init__(self, blobs: Blobs, disk: Executor) -> None:
        self._blobs = blobs
        self._disk = disk
        self._held: OrderedDict[str, asyncio.Future[bytes | None]] = OrderedDict()
        self._size = 0

    async def read(self, digest: str) -> bytes | None:
        """A model's bytes; None if it is too large to be kept.

        Raises:
            FileNotFoundError: there is none.
        """
        reading = self._held.get(digest)
        if reading is None:
            run = asyncio.get_running_loop().run_in_executor
            reading = self._held[digest] = run(self._disk, self._read, digest)
            reading.add_done_callback(lambda read: self._keep(digest, read))
        else:
            self._held.move_to_end(digest)
        return await asyncio.shield(reading)  # Others wait for it, too.

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
