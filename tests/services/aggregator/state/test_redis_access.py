"""The connection to a real Redis."""

import pytest

from rampart_fl.services.aggregator.state.stores import Stores

pytestmark = pytest.mark.anyio


async def test_redis_reports_that_writes_are_durable(stores: Stores) -> None:
    client = stores.redis.client
    assert await stores.redis.durable()
    await client.config_set("appendfsync", "everysec")
    try:
        assert not await stores.redis.durable()
    finally:
        await client.config_set("appendfsync", "always")
