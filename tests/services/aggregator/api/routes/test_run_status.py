"""Event streams are limited for each operator, and in total."""

from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from rampart_fl.services.aggregator.api.operator_tokens import Actor
from rampart_fl.services.aggregator.api.routes.run_status import (
    STREAM,
    STREAMS,
    STREAMS_EACH,
    stream_slot,
)
from rampart_fl.shared.protocol.refusals import TooMany
from tests.services.aggregator.api.conftest import Api

pytestmark = pytest.mark.anyio
slot = asynccontextmanager(stream_slot)


async def test_no_operator_takes_all_event_streams(api: Api) -> None:
    runtime = api.runtime

    async def refusal(name: str) -> str:
        with pytest.raises(TooMany) as error:
            async with slot(runtime, Actor(name, "viewer")):
                pass
        return error.value.detail

    async with AsyncExitStack() as stack:
        for number in range(STREAMS):
            name = f"viewer-{number // STREAMS_EACH}"
            await stack.enter_async_context(slot(runtime, Actor(name, "viewer")))
        assert await refusal("viewer-0") == f"viewer-0 already has {STREAMS_EACH} event streams"
        assert await refusal("owner") == "too many event streams are already open"
    assert (runtime.hub.count(STREAM), runtime.streams.total()) == (0, 0)
    async with slot(runtime, Actor("viewer-0", "viewer")):
        assert runtime.streams["viewer-0"] == 1
