"""What a run waits for between rounds; and the limits on event streams."""

from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from rampart_fl.services.aggregator.api.operator_tokens import Actor
from rampart_fl.services.aggregator.api.routes.run_status import (
    STREAM,
    STREAMS,
    STREAMS_EACH,
    stream_slot,
)
from rampart_fl.services.aggregator.state.client_facts import LastRequest
from rampart_fl.shared.protocol.refusals import TooMany
from tests.services.aggregator.api.conftest import RUN, Api
from tests.services.aggregator.conftest import BY

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


async def test_operators_see_that_a_run_waits_for_its_members(api: Api) -> None:
    async def cause() -> str:
        entry = (await api.ask("GET", RUN)).json()["waits_for"]
        assert (await api.ask("GET", f"{RUN}/rounds/current")).json()["waits_for"] == entry
        return str(entry)

    live_run = api.live_run
    await live_run.join("ada", "bob")
    assert "online" not in await cause(), "the clients' requests may not have been stored yet"
    await live_run.stores.clients.saw(
        {"ada": LastRequest(121.0, "", False), "bob": LastRequest(121.0, "", False)}
    )
    assert await cause() == "clients: 0 of 2 members are online"
    await live_run.open(0, ["ada", "bob"])
    assert await cause() == "", "the round is open"
    await live_run.quarantine(0)
    assert await cause() == "clients: 0 of 2 members are online"
    await live_run.run.evictions.evict("bob", BY)
    await live_run.stores.clients.saw(
        {"bob": LastRequest(0.0, "", False), "ada": LastRequest(121.0, "", False)}
    )
    assert await cause() == "clients: 0 of 1 members are online"
    await live_run.run.state.set_status("paused", BY)
    assert await cause() == "", "an operator has paused the run"
    await live_run.run.state.set_status("running", BY)
    await live_run.stores.clients.saw({"ada": LastRequest(119.0, "", False)})
    assert await cause() == ""


async def test_mode_that_bars_clients_is_refused_if_the_experiment_forbids_it(api: Api) -> None:
    async def answer(mode: str) -> tuple[int, str | None, str | None]:
        response = await api.ask("POST", f"{RUN}/mode", json={"mode": mode})
        body = response.json()
        return response.status_code, body.get("type"), body.get("detail")

    state, redis = api.live_run.run.state, api.live_run.stores.redis
    assert await answer("evict") == (200, None, None)
    await redis.ask("hdel", state.keys.state, "barring_conflict")  # As in an older version.
    assert await answer("quarantine") == (200, None, None)
    await redis.ask("hset", state.keys.state, "barring_conflict", "groups share a bound")
    for mode in ("quarantine", "evict"):
        assert await answer(mode) == (422, "urn:rampart:invalid-experiment", "groups share a bound")
    for mode in ("observe", "reject"):
        assert await answer(mode) == (200, None, None)
