"""Limits the uploads that are read at once: a fixed number in total, and one per client."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rampart_fl.services.aggregator.metrics import ProcessMetrics
from rampart_fl.shared.protocol.refusals import TooMany

PATIENCE = 60.0
"""An upload that waits this many seconds for a slot is refused. Clients wait longer than `PATIENCE`
for the response, so they receive the refusal."""


class UploadSlots:
    """The upload slots of one process.

    Args:
        count: maximum number of uploads that are read at the same time.
        metrics: receives the number of uploads being read.
    """

    def __init__(self, count: int, metrics: ProcessMetrics) -> None:
        self._places = asyncio.Semaphore(count)
        self._metrics = metrics
        self._clients: set[str] = set()

    @asynccontextmanager
    async def take(self, client: str) -> AsyncIterator[None]:
        """Waits for a slot, in order of arrival, and holds it until the `with` block ends.

        Raises:
            TooMany: this client already holds or awaits a slot, or no slot became free in time.
        """
        if client in self._clients:
            raise TooMany("another upload of this client is already being read", retry_after=1)
        self._clients.add(client)
        try:
            await self._acquire()
            self._metrics.reading.inc()
            try:
                yield
            finally:
                self._metrics.reading.dec()
                self._places.release()
        finally:
            self._clients.discard(client)

    async def _acquire(self) -> None:
        if not self._places.locked():
            await self._places.acquire()
            return
        try:
            async with asyncio.timeout(PATIENCE):
                await self._places.acquire()
        except TimeoutError:
            raise TooMany("no upload slot became free in time", retry_after=2) from None
