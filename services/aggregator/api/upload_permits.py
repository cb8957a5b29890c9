"""Limits the uploads that are read at once: a fixed number in total, and one per client."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rampart_fl.services.aggregator.metrics import ProcessMetrics
from rampart_fl.shared.protocol.refusals import TooMany

PATIENCE = 60.0
"""An upload that waits this many seconds for a permit is refused. Clients wait longer than
`PATIENCE` for the response, so they receive the refusal."""


class UploadPermits:
    """Permits to read an upload in one process.

    Args:
        count: maximum number of uploads that are read at the same time.
        metrics: receives the number of uploads being read.
    """

    def __init__(self, count: int, metrics: ProcessMetrics) -> None:
        self._permits = asyncio.Semaphore(count)
        self._metrics = metrics
        self._clients: set[str] = set()

    @asynccontextmanager
    async def take(self, client: str) -> AsyncIterator[None]:
        """Waits for a permit, in order of arrival, and holds it until the `with` block ends.

        Raises:
            TooMany: this client already holds or awaits a permit, or no permit became free in time.
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
                self._permits.release()
        finally:
            self._clients.discard(client)

    async def _acquire(self) -> None:
        if not self._permits.locked():
            await self._permits.acquire()
            return
        try:
            async with asyncio.timeout(PATIENCE):
                await self._permits.acquire()
        except TimeoutError:
            raise TooMany(
                "the server was busy with other uploads for too long", retry_after=2
            ) from None
