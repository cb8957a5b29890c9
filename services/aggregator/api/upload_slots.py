"""Slots for uploads that are read at the same time: a few in all, one for each client."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rampart_fl.services.aggregator.metrics import Metrics
from rampart_fl.shared.protocol.refusals import TooMany

QUEUE = 256
"""Uploads that may wait for a place before more are refused."""


class UploadSlots:
    """The places of one process.

    Args:
        count: how many uploads are read at the same time.
        metrics: gets the number of uploads being read.
    """

    def __init__(self, count: int, metrics: Metrics) -> None:
        self._places = asyncio.Semaphore(count)
        self._metrics = metrics
        self._clients: set[str] = set()
        self._waiting = 0

    @asynccontextmanager
    async def take(self, client: str) -> AsyncIterator[None]:
        """Waits for a place, in order of arrival.

        Raises:
            TooMany: this client holds or awaits one already, or too many wait.
        """
        if client in self._clients:
            raise TooMany("an upload of this client is being read already", retry_after=1)
        if self._waiting >= QUEUE:
            raise TooMany("too many uploads wait already", retry_after=2)
        self._clients.add(client)
        try:
            self._waiting += 1
            try:
                await self._places.acquire()
            finally:
                self._waiting -= 1
            self._metrics.reading.inc()
            try:
                yield
            finally:
                self._metrics.reading.dec()
                self._places.release()
        finally:
            self._clients.discard(client)
