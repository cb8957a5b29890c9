"""Limits the uploads that are read at once: a fixed number in total, and one per client.

A slow upload may keep its slot for as long as no other client needs it. Clients that always send
slowly cannot keep other clients from uploading, because a slow upload ends if a client waits that
has not been slow itself. Two slow clients never end each other's uploads; otherwise, many clients
with slow networks would start again and again, and none of them would ever complete an upload.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rampart_fl.services.aggregator.metrics import Metrics
from rampart_fl.shared.protocol.refusals import SlowBody, TooMany

PATIENCE = 60.0
"""An upload that waits this many seconds for a slot is refused. Clients wait longer than `PATIENCE`
for the response, so they receive the refusal."""
HOLD = 10.0
"""Number of seconds for which every upload may keep its slot, no matter how slow the upload is."""
FAST = 1 << 20
"""Average rate in bytes per second below which an upload is slow after `HOLD` seconds."""


class UploadSlots:
    """The upload slots of one process.

    Args:
        count: maximum number of uploads that are read at the same time.
        metrics: receives the number of uploads being read.
    """

    def __init__(self, count: int, metrics: Metrics) -> None:
        self._places = asyncio.Semaphore(count)
        self._metrics = metrics
        self._clients: set[str] = set()
        self._slow: set[str] = set()
        """The clients whose latest upload was slow."""
        self._urgent: set[str] = set()
        """The clients that wait for a slot and are not slow."""
        self._ending: set[str] = set()
        """The clients whose upload was ended, but whose slot nobody else has yet."""

    @asynccontextmanager
    async def take(
        self, client: str, body: AsyncIterator[bytes]
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Waits for a slot, in order of arrival, and holds it until the `with` block ends.

        Args:
            client: the client's id.
            body: the chunks of the client's upload.
        Yields:
            The chunks. The iteration raises `SlowBody` if the upload is slow, and a client waits
            that is not.
        Raises:
            TooMany: this client already holds or awaits a slot, or no slot became free in time.
        """
        if client in self._clients:
            raise TooMany("another upload of this client is already being read", retry_after=1)
        self._clients.add(client)
        try:
            await self._acquire(client)
            self._slow.discard(client)
            self._metrics.reading.inc()
            try:
                yield self._watch(client, body)
            finally:
                self._metrics.reading.dec()
                self._places.release()
                # Only after the client that gets the slot has woken, and is not urgent any more.
                asyncio.get_running_loop().call_soon(self._ending.discard, client)
        finally:
            self._clients.discard(client)

    async def _acquire(self, client: str) -> None:
        if not self._places.locked():
            await self._places.acquire()
            return
        if client not in self._slow:
            self._urgent.add(client)
        try:
            async with asyncio.timeout(PATIENCE):
                await self._places.acquire()
        except TimeoutError:
            raise TooMany("no upload slot became free in time", retry_after=2) from None
        finally:
            self._urgent.discard(client)

    async def _watch(self, client: str, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Passes the chunks on; measures the time for which the client makes the server wait."""
        clock = asyncio.get_running_loop().time
        received, waited, asked = 0, 0.0, clock()
        async for chunk in body:
            received += len(chunk)
            waited += clock() - asked
            if waited > HOLD and received < waited * FAST:
                self._slow.add(client)
                if len(self._urgent) > len(self._ending):
                    self._ending.add(client)
                    raise SlowBody(
                        f"another client needs the slot: {received} bytes in {waited:.0f} seconds"
                    )
            yield chunk
            asked = clock()
