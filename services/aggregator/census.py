"""Who is there: clients that were heard of lately, and those that may be drawn."""

import asyncio
from collections.abc import Callable

from services.aggregator.round_store import RoundStore


class Census:
    """Counts clients for one worker.

    Args:
        store: the federation's state.
        offline_after: seconds of silence after which a client is not drawn.
        clock: Unix time.
    """

    def __init__(self, store: RoundStore, offline_after: float, clock: Callable[[], float]) -> None:
        self._store = store
        self._offline_after = offline_after
        self._clock = clock
        self._started_at = clock()

    async def online(self) -> set[str]:
        """Clients heard of lately; time in which no worker was there does not count."""
        since = self._clock() - self._offline_after
        if self._started_at > since:
            return set(await self._store.clients())
        return {client for client, at in (await self._store.seen()).items() if at > since}

    async def candidates(self) -> list[str]:
        """Clients that may be drawn: registered, not evicted, online."""
        online, evicted, clients = await asyncio.gather(
            self.online(), self._store.evicted(), self._store.clients()
        )
        return [c for c in clients if c not in evicted and c in online]
