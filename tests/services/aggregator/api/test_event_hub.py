"""The hub: one reader of events, any number of waiting requests, and none misses an event."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from rampart_fl.services.aggregator.api import event_hub
from rampart_fl.services.aggregator.api.event_hub import EventHub
from rampart_fl.services.aggregator.state.audit_log import Attribution
from rampart_fl.services.aggregator.state.join_token_store import JoinTokenRecord
from rampart_fl.services.aggregator.state.member_store import AnswerRecord
from rampart_fl.services.aggregator.state.stores import Stores
from rampart_fl.shared.errors import Unavailable
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.modelspec import ModelSpec
from tests.services.aggregator.conftest import SNAPSHOT

pytestmark = pytest.mark.anyio
DIGEST = "d" * 64
BY = Attribution("ada", "a test", 0.0)
YES = AnswerRecord(accept=True, at=0.0)


@asynccontextmanager
async def running(stores: Stores) -> AsyncIterator[EventHub]:
    """A hub that hears events."""
    hub = EventHub(stores, flush_every=0.02)
    task = asyncio.create_task(hub.run())
    while not hub.listening:
        await asyncio.sleep(0.001)
    try:
        yield hub
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_a_thousand_waiting_requests_miss_no_round(live_run: Any) -> None:
    rounds = 5
    current = -1

    async def poll(hub: EventHub, client: str) -> list[int]:
        """Every round that a long poll saw, as the route for tickets looks and waits."""
        seen = [-1]
        while seen[-1] < rounds - 1:
            with hub.listen(client) as wait:
                while current == seen[-1]:
                    assert await wait(60), "woken, not timed out"
                seen.append(current)
        return seen

    async with running(live_run.stores) as hub:
        polls = [asyncio.create_task(poll(hub, f"client-{n}")) for n in range(1000)]
        while hub.waiting < 1000:
            await asyncio.sleep(0.001)
        for number in range(rounds):
            current = number
            await live_run.open(number, [f"client-{n}" for n in range(1000)])
            await asyncio.sleep(0.01 * (number % 2))
        seen = await asyncio.gather(*polls)
        assert all(one[-1] == rounds - 1 for one in seen)
        assert hub.waiting == 0


async def test_event_for_one_client_wakes_only_that_client(live_run: Any) -> None:
    async with running(live_run.stores) as hub:
        with hub.listen("a") as a, hub.listen("b") as b, hub.listen("r") as request:
            await live_run.run.tickets.grant(live_run.fence, "a", live_run.ticket(0))
            assert await a(5)
            assert not await b(0.05)
            await live_run.run.customizations.answer(live_run.fence, "r", DIGEST)
            assert await request(5)
            assert not await b(0.05)


async def test_a_round_wakes_only_the_clients_that_it_draws(live_run: Any) -> None:
    drawn, others = [f"drawn-{n}" for n in range(20)], [f"other-{n}" for n in range(200)]
    woken = Counter[str]()

    async def watch(hub: EventHub, client: str) -> None:
        with hub.listen(client) as wait:
            while await wait(60):
                woken[client] += 1

    async with running(live_run.stores) as hub:
        watching = [asyncio.create_task(watch(hub, client)) for client in drawn + others]
        while hub.waiting < len(watching):
            await asyncio.sleep(0.001)
        for number in range(3):
            await live_run.open(number, drawn)
            while sum(woken.values()) < (number + 1) * len(drawn):
                await asyncio.sleep(0.001)
        await live_run.open(3, [])
        with hub.listen("last") as wait:
            await live_run.run.tickets.grant(live_run.fence, "last", live_run.ticket(3))
            assert await wait(60), "all earlier events were handled"
        hub.close()
        await asyncio.gather(*watching)
    assert woken == dict.fromkeys(drawn, 3)


async def test_event_between_listen_and_wait_is_not_missed(live_run: Any) -> None:
    async with running(live_run.stores) as hub:
        with hub.listen("a") as wait:
            with hub.listen("a") as witness:
                await live_run.open(0, ["a"])
                assert await witness(5)
            assert await wait(5)
            assert not await wait(0.01), "one event wakes once"


async def test_changed_tokens_are_noticed(live_run: Any) -> None:
    await live_run.join("a")
    async with running(live_run.stores) as hub:
        before = hub.token_changes
        await live_run.stores.clients.change_token("a", "", 0, BY)
        while hub.token_changes == before:
            await asyncio.sleep(0.001)


async def test_closing_the_hub_releases_all_waiters(stores: Stores) -> None:
    async with running(stores) as hub:
        with hub.listen("a") as a, hub.listen("b") as b:
            both = asyncio.gather(a(60), b(60))
            await asyncio.sleep(0)
            hub.close()
            assert await both == [False, False]
            assert not await a(60), "and nobody waits any more"


async def test_last_requests_of_clients_are_written_in_the_background(stores: Stores) -> None:
    async with running(stores) as hub:
        hub.saw("a")
        while "a" not in await stores.clients.silences():
            await asyncio.sleep(0.01)


async def test_all_waiters_wake_after_a_redis_outage(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(stores) as hub:
        with hub.listen("a") as wait:
            before = hub.token_changes

            async def away(*_: object) -> None:
                monkeypatch.undo()
                raise Unavailable("Redis is away")

            monkeypatch.setattr(event_hub, "read_streams", away)
            await stores.join_tokens.add({"j": JoinTokenRecord(9.0)}, BY)
            await stores.clients.join("j", "h", "x", "", 1.0, 9.0)
            assert await wait(10)
            assert hub.token_changes > before, "nor is any token remembered"


async def test_waiting_requests_are_counted_by_topic(stores: Stores) -> None:
    hub = EventHub(stores)
    with hub.listen("a"), hub.listen("a"), hub.listen("b"):
        assert (hub.count("a"), hub.count("b"), hub.count("c"), hub.waiting) == (2, 1, 0, 3)
    assert (hub.count("a"), hub.waiting) == (0, 0)


async def test_cancelled_hub_stops_even_while_events_arrive(
    stores: Stores,
) -> None:
    """redis-py may swallow a cancellation; the store does not."""
    for _ in range(30):
        async with asyncio.timeout(30), running(stores):
            await stores.of_run("x-1").customizations.request("r", "x", DIGEST)


async def test_events_of_the_next_run_wake_waiters(live_run: Any, experiment: Experiment) -> None:
    stores = live_run.stores
    async with running(stores) as hub:
        with hub.listen("a") as wait:
            info, _ = await stores.runs.submit(experiment, "second", BY)
            await live_run.run.state.end(live_run.fence, 1.0)
            run = stores.of_run(info.run)
            await run.state.start(live_run.fence, experiment, ModelSpec.of([]), SNAPSHOT, 1.0)
            await run.members.assign_slots(live_run.fence, {}, 0)
            while await wait(0.5):
                pass
            assert await run.members.answer("a", YES, 3) == ("recorded", "0")
            assert await wait(5), "an event of the next run"


async def test_a_deleted_run_is_noticed(live_run: Any, experiment: Experiment) -> None:
    async with running(live_run.stores) as hub:
        before = hub.deletions
        info, _ = await live_run.stores.runs.submit(experiment, "second", BY)
        await live_run.stores.runs.delete(info.run, BY)
        while hub.deletions == before:
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("events", [event_hub.BATCH - 1, 3 * event_hub.BATCH])
async def test_a_process_that_missed_events_trusts_no_cache(live_run: Any, events: int) -> None:
    """For example, a suspended process: the worker keeps only the newest events of the log."""
    stores = live_run.stores
    await stores.redis.client.xadd(stores.events.key, {"type": "checked", "request": "q"})
    async with running(stores) as hub:
        before = hub.token_changes
        async with stores.redis.client.pipeline() as pipe:
            pipe.multi()  # The hub reads nothing before the log is trimmed.
            for number in range(events):
                pipe.xadd(stores.events.key, {"type": "joined", "client": f"c-{number}"})
            pipe.xtrim(stores.events.key, maxlen=event_hub.BATCH, approximate=False)
            await pipe.execute()
        await asyncio.sleep(0.2)
        assert (hub.token_changes > before) == (events > event_hub.BATCH)
