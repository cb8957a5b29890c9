"""Behaviour that all stores share, with a real Redis."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from rampart_fl.services.aggregator.state.redis_access import LeaseLost
from rampart_fl.services.aggregator.state.snapshot import Snapshot
from rampart_fl.services.aggregator.state.stores import OPEN, Stores
from rampart_fl.shared.errors import Unavailable
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol.messages import RoundRecord
from tests.services.aggregator.conftest import FINDING

pytestmark = pytest.mark.anyio
NOW = 1_000_000.0
DIGEST = "d" * 64
SNAPSHOT = Snapshot(global_model=DIGEST, reference=DIGEST)


async def test_outdated_fencing_token_cannot_write(live_run: Any, experiment: Experiment) -> None:
    stores, old = live_run.stores, live_run.fence
    await live_run.join("a")
    await live_run.open(0, ["a"])
    current = await stores.lease.acquire("worker", 60, NOW)
    assert current is not None
    before = await live_run.dump()
    filed = await live_run.records.file(RoundRecord(round=0, status="published"))
    for attempt in (
        live_run.run.state.start(old, experiment, ModelSpec.of([]), SNAPSHOT, NOW),
        live_run.run.rounds.open(old, 1, "collecting", NOW, None, {}, []),
        live_run.run.tickets.grant(old, "a", live_run.ticket(0, "probe")),
        live_run.run.rounds.close(old, 0, "0-0"),
        live_run.run.rounds.publish(old, filed, {"a": FINDING}, SNAPSHOT, "0-0"),
        live_run.run.state.end(old, NOW),
        live_run.run.customizations.answer(old, "request", DIGEST),
    ):
        with pytest.raises(LeaseLost):
            await attempt
    assert await live_run.dump() == before


async def test_namespaces_are_isolated(live_run: Any, redis_url: str) -> None:
    async with aclosing(Stores.connect(redis_url, None, "somewhere-else")) as other:
        await live_run.join("a")
        assert await other.clients.records() == {}
        assert await other.lease.acquire("worker-2", 0.01, NOW) is not None


async def test_unreachable_redis_raises_unavailable() -> None:
    async with aclosing(Stores.connect("redis://127.0.0.1:1/0", None, "nowhere")) as stores:
        stores.redis.client.connection_pool.connection_kwargs["retry"]._retries = 0
        for attempt in (
            stores.redis.ping(),
            stores.of_run("x-1").state.summary(),
            stores.of_run("x-1").tickets.standing("a"),
            stores.of_run("x-1").tickets.pull("a"),
            stores.redis.durable(),
        ):
            with pytest.raises(Unavailable, match="Redis"):
                await attempt


async def test_closing_the_stores_cancels_pending_requests(
    live_run: Any,
) -> None:
    stores = live_run.stores
    requests = [
        asyncio.ensure_future(live_run.run.tickets.standing("a")),
        asyncio.ensure_future(live_run.run.uploads.accept(live_run.receipt("a"))),
    ]
    await asyncio.sleep(0)
    await stores.aclose()
    assert [type(answer) for answer in await asyncio.gather(*requests, return_exceptions=True)] == [
        asyncio.CancelledError,
        asyncio.CancelledError,
    ]


async def test_number_of_cached_run_stores_is_bounded(stores: Stores) -> None:
    for number in range(3 * OPEN):
        stores.of_run(f"run-{number}")
    assert len(stores._of_runs) == OPEN
    newest = f"run-{3 * OPEN - 1}"
    assert stores.of_run(newest) is stores.of_run(newest)
