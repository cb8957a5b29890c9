"""Liveness: which clients have recently sent a request, and which may be selected."""

import asyncio
import time
from collections.abc import Callable, Collection
from math import inf

from rampart_fl.services.aggregator.state.client_store import ClientStore
from rampart_fl.services.aggregator.state.eviction_store import EvictionStore
from rampart_fl.services.aggregator.state.member_store import MemberStore


class Liveness:
    """Determines which clients are online, from the point of view of one worker.

    Args:
        clients: the clients of the federation, with the times of their last requests.
        members, evictions: the state of the run.
        offline_after: a client that sends no request for this number of seconds is not selected.
        clock: returns the number of seconds since an arbitrary starting point.
    """

    def __init__(
        self,
        clients: ClientStore,
        members: MemberStore,
        evictions: EvictionStore,
        offline_after: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clients = clients
        self._members = members
        self._evictions = evictions
        self._offline_after = offline_after
        self._clock = clock
        self._started_at = clock()

    async def online(self, members: Collection[str]) -> set[str]:
        """Returns those of the given members that are online and have a valid token.

        A member is online if it sent a request within the last `offline_after` seconds. After a
        worker starts or takes over the run, every member counts as online for `offline_after`
        seconds. The only exception is a member that said in its last request that it is away.
        """
        silences = await self._clients.silences()
        if self._clock() - self._started_at < self._offline_after:
            online = {client for client in members if silences.get(client) != inf}
        else:
            online = {c for c in members if silences.get(c, inf) < self._offline_after}
        return online - await self._clients.without_token(online)

    async def absent(self, members: Collection[str]) -> set[str]:
        """Returns those of the given members that are away, or have a revoked or expired token.

        A member that has merely lost contact is not absent: it may still send its update.
        """
        without_token = await self._clients.without_token(members)
        return without_token | await self._clients.away(members)

    async def candidates(self, round_: int) -> list[str]:
        """Members that may be selected for a round: those that are online and not barred."""
        barred, members = await asyncio.gather(self._evictions.barred(), self._members.slots())
        away = barred.away(round_)
        present = [client for client in members if client not in away]
        online = await self.online(present)
        return [client for client in present if client in online]

    async def all_quarantined(self, round_: int) -> bool:
        """Whether every member that is not barred permanently is in quarantine in this round.

        The result is False if all members are barred permanently.
        """
        barred, slots = await asyncio.gather(self._evictions.barred(), self._members.slots())
        members = slots.keys() - barred.out
        return bool(members) and members <= barred.away(round_)
