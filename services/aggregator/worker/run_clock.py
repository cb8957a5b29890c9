"""The clock of a run.

If the clock of a machine jumps, the deadline of an open round does not move.
"""

import time
from collections.abc import Callable

from rampart_fl.services.aggregator.state.redis_access import RedisAccess


class RunClock:
    """A clock that shows the last time read from Redis' clock, plus the time since this reading.

    All workers read Redis' clock, so they agree on a deadline even if the clocks of their machines
    differ. Between two readings, this clock is monotonic: it does not jump, even if an
    administrator or NTP sets the clock of this machine or of Redis.

    Args:
        redis: the connection to Redis.
        elapsed: a monotonic clock; returns the number of seconds since an arbitrary starting point.
    """

    def __init__(self, redis: RedisAccess, elapsed: Callable[[], float] = time.monotonic) -> None:
        self._redis = redis
        self._elapsed = elapsed
        self._offset: float | None = None

    async def read(self) -> None:
        """Reads Redis' clock; call this method before `now`, and again before each round opens."""
        self._offset = await self._redis.time() - self._elapsed()

    def now(self) -> float:
        """The Unix time."""
        assert self._offset is not None, "Redis' clock has not been read"
        return self._offset + self._elapsed()
