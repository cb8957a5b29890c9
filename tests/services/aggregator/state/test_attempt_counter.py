"""The counter of attempts, in a real Redis."""

import pytest

from rampart_fl.services.aggregator.state.stores import Stores

pytestmark = pytest.mark.anyio


async def test_attempts_are_counted_by_name_and_window(stores: Stores) -> None:
    counts = [await stores.attempts.count("join:1.2.3.4", 60, now) for now in (0, 59, 60, 61)]
    assert counts == [1, 2, 1, 2]
    assert await stores.attempts.count("join:other", 60, 0) == 1


async def test_counter_expires_whichever_reply_is_lost(stores: Stores) -> None:
    """redis-py repeats a command whose reply was lost, so the first count may not be seen."""
    key = stores.keys.attempts("join:1.2.3.4", 0)
    await stores.redis.client.incr(key)
    assert await stores.attempts.count("join:1.2.3.4", 60, 0) == 2
    assert await stores.redis.client.ttl(key) > 0
