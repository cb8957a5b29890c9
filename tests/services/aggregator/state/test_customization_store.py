"""Requests for customized models, in a real Redis."""

from typing import Any

import pytest

pytestmark = pytest.mark.anyio
DIGEST = "d" * 64
OTHER = "e" * 64


async def test_an_answer_to_customize_is_found_by_its_request(founded: Any) -> None:
    stores = founded.stores
    await founded.run.customizations.request("r1", "a", DIGEST)
    assert await founded.run.customizations.result("r1") is None
    await founded.run.customizations.answer(founded.fence, "r1", OTHER)
    assert await founded.run.customizations.result("r1") == OTHER
    assert (
        0
        < await stores.redis.client.ttl(founded.run.customizations.keys.customization("r1"))
        <= 3600
    )
    await founded.run.customizations.answer(founded.fence, "r2", DIGEST)
    assert await founded.run.customizations.result("r1") == OTHER
    assert not await stores.redis.client.exists(f"{founded.run.keys.prefix}customized"), (
        "each answer ends by itself"
    )
