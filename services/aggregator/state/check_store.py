"""Passes experiments from the API to a worker, which checks them; the API has no torch."""

from dataclasses import dataclass
from typing import cast

from rampart_fl.services.aggregator.state.keys import FederationKeys
from rampart_fl.services.aggregator.state.redis_access import FENCED, RedisAccess

KEPT = 300
"""Seconds for which an experiment and the worker's answer are kept."""

ASK = """
-- KEYS checks events; ARGV request question kept
redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[3])
redis.call('XADD', KEYS[2], '*', 'type', 'check', 'request', ARGV[1])
return {'asked'}
"""

ANSWER = (
    FENCED
    + """
-- KEYS checks fence events; ARGV fence request answer kept
if fenced(KEYS[2], ARGV[1]) then return {'fenced'} end
redis.call('SET', KEYS[1], ARGV[3], 'EX', ARGV[4])
redis.call('XADD', KEYS[3], '*', 'type', 'checked', 'request', ARGV[2])
return {'done'}
"""
)


@dataclass(frozen=True)
class CheckStore:
    """Passes experiments to the worker, and returns the worker's results.

    Args:
        redis: the connection to Redis.
        keys: the keys of the federation.
    """

    redis: RedisAccess
    keys: FederationKeys

    async def ask(self, request: str, question: str) -> None:
        """Asks the worker to check an experiment, given as JSON."""
        keys = (self.keys.checks(f"{request}:asked"), self.keys.events)
        await self.redis.run(ASK, keys, request, question, KEPT)

    async def question(self, request: str) -> str | None:
        """The experiment to check for a request; None if the request is answered or expired."""
        if await self.result(request) is not None:
            return None
        return cast(str | None, await self.redis.ask("get", self.keys.checks(f"{request}:asked")))

    async def answer(self, fence: int, request: str, answer: str) -> None:
        """Stores the worker's answer, for the API to read."""
        keys = (self.keys.checks(request), self.keys.fence, self.keys.events)
        await self.redis.run(ANSWER, keys, fence, request, answer, KEPT)

    async def result(self, request: str) -> str | None:
        """The worker's answer; None if there is none yet."""
        return cast(str | None, await self.redis.ask("get", self.keys.checks(request)))
