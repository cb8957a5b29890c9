"""The event log, in a real Redis."""

import pytest

from rampart_fl.services.aggregator.state.stores import Stores

pytestmark = pytest.mark.anyio
DIGEST = "d" * 64


async def test_events_are_dropped_but_for_the_last(stores: Stores) -> None:
    for _ in range(30):
        await stores.customizations.request("r", "a", DIGEST)
    await stores.events.trim(10)
    assert len(await stores.events.read("0-0", 0.001)) == 30, "whole nodes of the stream go"
    for _ in range(500):
        await stores.customizations.request("r", "a", DIGEST)
    await stores.events.trim(10)
    assert 10 <= len(await stores.events.read("0-0", 0.001)) <= 130
