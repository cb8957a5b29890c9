"""The connection to a real Redis."""

import pytest

from rampart_fl.services.aggregator.state.stores import Stores

pytestmark = pytest.mark.anyio


async def test_durability_is_asked_of_redis(stores: Stores) -> None:
    assert await stores.redis.durable()
