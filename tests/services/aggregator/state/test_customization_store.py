"""Requests for customized models, in a real Redis."""

from typing import Any

import pytest

pytestmark = pytest.mark.anyio
DIGEST = "d" * 64
OTHER = "e" * 64


async def test_customization_result_is_stored_by_request_and_expires(live_run: Any) -> None:
    stores = live_run.stores
    await live_run.run.customizations.request("r1", "a", DIGEST)
    assert await live_run.run.customizations.result("r1") is None
    await live_run.run.customizations.answer(live_run.fence, "r1", OTHER)
    assert await live_run.run.customizations.result("r1") == OTHER
    assert (
        0
        < await stores.redis.client.ttl(live_run.run.customizations.keys.customization("r1"))
        <= 3600
    )
    await live_run.run.customizations.answer(live_run.fence, "r2", DIGEST)
    assert await live_run.run.customizations.result("r1") == OTHER
    assert not await stores.redis.client.exists(f"{live_run.run.keys.prefix}customized"), (
        "each answer ends by itself"
    )
