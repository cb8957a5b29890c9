"""The event log, in a real Redis."""

from typing import Any

import pytest

pytestmark = pytest.mark.anyio
DIGEST = "d" * 64


async def test_trim_drops_all_but_the_newest_events(live_run: Any) -> None:
    for _ in range(30):
        await live_run.run.customizations.request("r", "a", DIGEST)
    await live_run.run.events.trim(10)
    assert len(await live_run.run.events.read("0-0", 0.001)) == 32, "whole nodes of the stream go"
    for _ in range(500):
        await live_run.run.customizations.request("r", "a", DIGEST)
    await live_run.run.events.trim(10)
    assert 10 <= len(await live_run.run.events.read("0-0", 0.001)) <= 130
