"""Which clients a worker takes to be online."""

import asyncio
import time
from typing import Any

import pytest

from rampart_fl.services.aggregator.api.event_hub import EventHub
from rampart_fl.services.aggregator.state.audit_log import Attribution
from rampart_fl.services.aggregator.state.client_facts import LastRequest
from rampart_fl.services.aggregator.worker.liveness import Liveness

pytestmark = pytest.mark.anyio
BY = Attribution("ada", "a test", 0.0)


@pytest.mark.parametrize("error", [-3600.0, 3600.0])
async def test_clients_are_online_whatever_the_clocks_of_api_and_worker_say(
    live_run: Any, monkeypatch: pytest.MonkeyPatch, error: float
) -> None:
    await live_run.join("a", "b")
    now, redis = time.time, live_run.stores.redis.client
    monkeypatch.setattr(time, "time", lambda: now() + error)
    hub = EventHub(live_run.stores, flush_every=0.01)
    flushing = asyncio.create_task(hub.run())
    hub.saw("a")
    while await redis.zscore(live_run.stores.keys.seen, "a") is None:
        await asyncio.sleep(0.01)
    flushing.cancel()
    monkeypatch.undo()
    run = live_run.run
    liveness = Liveness(live_run.stores.clients, run.members, run.evictions, 60)
    assert await liveness.online(["a", "b"]) == {"a", "b"}, "the worker has only just started"
    liveness._started_at -= 61
    assert await liveness.online(["a", "b"]) == {"a"}
    assert await liveness.online(["b"]) == set()
    await redis.zadd(live_run.stores.keys.seen, {"a": await live_run.stores.redis.time() - 61})
    assert await liveness.online(["a", "b"]) == set()


async def test_a_client_that_is_away_is_offline_even_if_the_worker_has_just_started(
    live_run: Any,
) -> None:
    await live_run.join("a", "b")
    run, clients = live_run.run, live_run.stores.clients
    await clients.saw({"a": LastRequest(0.0, "", True), "b": LastRequest(0.0, "", False)})
    liveness = Liveness(clients, run.members, run.evictions, 60)
    assert await liveness.online(["a", "b"]) == {"b"}
    await clients.saw({"a": LastRequest(0.0, "", False)})
    assert await liveness.online(["a", "b"]) == {"a", "b"}


async def test_only_a_client_that_says_so_or_has_no_valid_token_is_absent(live_run: Any) -> None:
    await live_run.join("a", "b", "c", "d")
    run, clients = live_run.run, live_run.stores.clients
    await clients.saw({"a": LastRequest(0.0, "", True), "b": LastRequest(3600.0, "", False)})
    await clients.change_token("d", "", 0.0, BY)
    liveness = Liveness(clients, run.members, run.evictions, 60)
    assert await liveness.absent(["a", "b", "c", "d"]) == {"a", "d"}, "b has lost contact"
    assert await liveness.absent(["b"]) == set()
    assert await liveness.absent([]) == set()
    await clients.saw({"a": LastRequest(0.0, "", False)})
    assert await liveness.absent(["a", "b", "c", "d"]) == {"d"}
