"""Clients' requests for customized models outside of a round, and the worker's answers."""

from dataclasses import dataclass
from typing import cast

from rampart_fl.services.aggregator.state.keys import FederationKeys, RunKeys
from rampart_fl.services.aggregator.state.redis_access import FENCED, RedisAccess

CUSTOMIZED = (
    FENCED
    + """
-- KEYS customized fence events; ARGV fence request digest
if fenced(KEYS[2], ARGV[1]) then return {'fenced'} end
redis.call('SET', KEYS[1], ARGV[3], 'EX', 3600)
redis.call('XADD', KEYS[3], '*', 'type', 'customized', 'request', ARGV[2])
return {'done'}
"""
)


@dataclass(frozen=True)
class CustomizationStore:
    """Passes requests for customized models to the worker, and returns the worker's answers.

    Args:
        redis: the connection to Redis.
        keys: the keys of the run.
        federation: keys of the federation, such as the key of the worker's fencing token.
    """

    redis: RedisAccess
    keys: RunKeys
    federation: FederationKeys

    async def request(self, request: str, name: str, digest: str) -> None:
        """Asks the worker to make a customized model from an update.

        Args:
            request: the id of the request.
            name: the id of the client that sent the update. If an operator sent the update, a
                reserved id.
            digest: the digest of the update.
        """
        fields = {"type": "customize", "request": request, "client": name, "digest": digest}
        await self.redis.ask("xadd", self.keys.events, fields)

    async def answer(self, fence: int, request: str, digest: str) -> None:
        """Stores the digest of the model made for a request, so that the API can read it."""
        keys = (self.keys.customization(request), self.federation.fence, self.keys.events)
        await self.redis.run(CUSTOMIZED, keys, fence, request, digest)

    async def result(self, request: str) -> str | None:
        """The digest of the model made for a request; None if the model is not ready yet."""
        return cast(str | None, await self.redis.ask("get", self.keys.customization(request)))
