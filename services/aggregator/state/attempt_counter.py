"""Counts attempts per time window, for the API's rate limits."""

from dataclasses import dataclass

from rampart_fl.services.aggregator.state.keys import FederationKeys
from rampart_fl.services.aggregator.state.redis_access import RedisAccess, converted_errors


@dataclass(frozen=True)
class AttemptCounter:
    """Counts attempts, such as attempts to join from one address, per time window.

    Args:
        redis: the connection to Redis.
        keys: the keys of the counters.
    """

    redis: RedisAccess
    keys: FederationKeys

    async def count(self, name: str, window: int, now: float) -> int:
        """Counts an attempt; returns the number of attempts with this name in the time window.

        Args:
            name: what is attempted, and by whom, such as `join:ADDRESS`.
            window: length of a time window in seconds.
            now: Unix time.
        """
        key = self.keys.attempts(name, int(now // window))
        # Use a transaction: if only the first command ran, the counter would never expire.
        async with converted_errors(), self.redis.client.pipeline(transaction=True) as pipe:
            pipe.incr(key)
            pipe.expire(key, 2 * window)
            count, _ = await pipe.execute()
        return int(count)
