"""The client behind a token: cached while events arrive, forgotten when any token changes."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from rampart_fl.services.aggregator.api.event_hub import EventHub
from rampart_fl.services.aggregator.api.identities import Identities, TokenOwner
from rampart_fl.services.aggregator.state.client_store import ClientStore, TokenRecord
from rampart_fl.services.aggregator.state.stores import Stores
from tests.services.aggregator.conftest import BY, VALID_UNTIL

pytestmark = pytest.mark.anyio


class Counting(ClientStore):
    """A store of clients that counts how often it is asked for a token."""

    lookups = 0

    async def of_token(self, token_hash: str) -> TokenRecord | None:
        Counting.lookups += 1
        return await super().of_token(token_hash)


@pytest.fixture
def counting(stores: Stores) -> Counting:
    Counting.lookups = 0
    return Counting(stores.redis, stores.keys, stores.audit)


async def test_tokens_are_not_cached_while_the_hub_reads_no_events(
    live_run: Any, stores: Stores, counting: Counting
) -> None:
    await live_run.join("a")
    identities = Identities(counting, EventHub(stores))
    for _ in range(3):
        assert await identities.of("token-a") == TokenOwner("a", "token-a", VALID_UNTIL, None)
    assert counting.lookups == 3


async def test_a_token_is_looked_up_once_until_any_token_changes(
    live_run: Any, stores: Stores, counting: Counting
) -> None:
    await live_run.join("a", "b")
    hub = EventHub(stores)
    task = asyncio.create_task(hub.run())
    while not hub.listening:
        await asyncio.sleep(0.001)
    identities = Identities(counting, hub)
    for _ in range(3):
        assert (await identities.of("token-a")) is not None
    assert counting.lookups == 1
    assert await identities.of("garbage") is None
    assert await identities.of("garbage") is None
    assert counting.lookups == 3, "unknown tokens are not cached"

    changes = hub.token_changes
    await live_run.stores.clients.change_token("a", "", 0, BY)  # By another process.
    while hub.token_changes == changes:
        await asyncio.sleep(0.001)
    assert await identities.of("token-a") is None
    assert (await identities.of("token-b")) is not None
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
