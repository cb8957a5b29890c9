"""Starting, steering and ending a run, in a real Redis."""

from typing import Any

import pytest

from rampart_fl.services.aggregator.state.audit_log import Attribution
from rampart_fl.services.aggregator.state.redis_access import LeaseLost
from rampart_fl.services.aggregator.state.snapshot import Snapshot
from rampart_fl.services.aggregator.state.stores import Stores
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol.messages import RoundRecord

pytestmark = pytest.mark.anyio
NOW = 1_000_000.0
BY = Attribution("ada", "a test", NOW)
SPEC = ModelSpec.of([("weight", (2, 3))])
SNAPSHOT = Snapshot(global_model="d" * 64, reference="e" * 64, pulls=("a",))


async def test_run_is_started_only_once_and_only_in_its_turn(
    stores: Stores, experiment: Experiment
) -> None:
    fence, digest = await stores.lease.acquire("worker", 60, NOW), experiment.digest()
    assert fence is not None
    first, _ = await stores.runs.submit(experiment, "first", BY)
    second, _ = await stores.runs.submit(experiment, "second", BY)
    start = stores.of_run(first.run).state.start
    arguments = (fence, experiment, SPEC, SNAPSHOT, NOW)
    assert await stores.of_run(second.run).state.start(*arguments) == "gone", "it is not its turn"
    assert await start(*arguments, NOW + 60) == "founded"
    run = await stores.of_run(first.run).state.read()
    assert run is not None
    assert (run.digest, run.phase, run.schema, run.slots_assigned) == (
        digest,
        "joining",
        "3",
        False,
    )
    assert (run.status, run.round, run.deadline) == ("running", 0, NOW + 60)
    assert (run.experiment, run.spec) == (experiment, SPEC)
    assert run.snapshot == SNAPSHOT
    assert (
        await start(
            fence, experiment, SPEC, Snapshot(global_model="f" * 64, reference="f" * 64), NOW
        )
        == "same"
    )
    assert await stores.of_run(first.run).state.read() == run
    assert (await stores.runs.current(), await stores.runs.queue()) == (first.run, [second.run])
    assert await stores.of_run(second.run).state.start(*arguments) == "gone", "another is executed"


async def test_each_run_has_its_own_secret_seed(stores: Stores, experiment: Experiment) -> None:
    fence = await stores.lease.acquire("worker", 60, NOW)
    assert fence is not None
    seeds = []
    for number in range(2):
        info, _ = await stores.runs.submit(experiment, str(number), BY)
        run = stores.of_run(info.run)
        await run.state.start(fence, experiment, SPEC, SNAPSHOT, NOW)
        state, again = await run.state.read(), await run.state.read()
        assert state is not None and state == again
        seeds.append(state.server_seed)
        await run.state.end(fence, NOW)
    assert len({experiment.seed, *seeds}) == 3


async def test_a_run_from_before_secret_seeds_draws_as_before(
    live_run: Any, experiment: Experiment
) -> None:
    await live_run.stores.redis.client.hdel(live_run.run.keys.state, "server_seed")
    state = await live_run.run.state.read()
    assert state is not None and state.server_seed == experiment.seed


async def test_state_with_another_schema_is_refused(live_run: Any) -> None:
    stores = live_run.stores
    await stores.redis.client.hset(live_run.run.keys.state, "schema", "0")
    with pytest.raises(ConfigurationError, match="schema 0; this version reads 3"):
        await live_run.run.state.read()


async def test_run_cannot_be_steered_before_it_starts(
    stores: Stores, experiment: Experiment
) -> None:
    info, _ = await stores.runs.submit(experiment, "first", BY)
    run = stores.of_run(info.run)
    assert await run.state.set_status("paused", BY) == ("unfounded", "")
    assert await run.state.set_mode("observe", BY) == ("unfounded", "")
    assert await run.state.summary() is None
    assert await run.state.read() is None
    assert (await run.tickets.standing("a")).summary is None
    assert await run.events.last_position() == "0-0"


async def test_worker_records_what_the_next_run_waits_for(
    stores: Stores, experiment: Experiment
) -> None:
    fence = await stores.lease.acquire("worker", 60, NOW)
    assert fence is not None
    info, _ = await stores.runs.submit(experiment, "a", BY)
    run, another = stores.of_run(info.run), stores.of_run("another-2")
    assert await run.state.wait_reason() == ""
    with pytest.raises(LeaseLost):
        await run.state.hold(fence - 1, "disk")
    for reason in ("disk", "more disk", "more disk"):
        await run.state.hold(fence, reason)
        assert await run.state.wait_reason() == reason
    assert await another.state.wait_reason() == ""
    for _ in range(2):
        await run.state.hold(fence, "")
        assert await run.state.wait_reason() == ""
    events = await run.events.read("0-0", 0.001)
    waits = [{"type": "waiting", "reason": "disk"}, {"type": "continued"}]
    assert [dict(event.fields) for event in events] == waits, "one event per start and end"


@pytest.mark.parametrize("status", ["paused", "stopping"])
async def test_run_waits_for_nothing_if_it_is_paused_before_the_worker_records_the_wait(
    live_run: Any, status: str
) -> None:
    state = live_run.run.state
    await state.hold(live_run.fence, "disk")
    await state.set_status(status, BY)
    await state.hold(live_run.fence, "disk")
    assert await state.wait_reason() == ""
    events = [event.type for event in await live_run.run.events.read("0-0", 0.001)]
    assert events[-3:] == ["waiting", status, "continued"]


async def test_run_that_ends_waits_for_nothing(live_run: Any) -> None:
    state = live_run.run.state
    await state.hold(live_run.fence, "disk")
    await state.end(live_run.fence, NOW, "failed", "an error")
    assert await state.wait_reason() == ""


async def test_stopping_run_cannot_be_resumed(live_run: Any) -> None:
    run = live_run.run
    assert await run.state.set_status("paused", BY) == ("done", "paused")
    assert await run.state.set_status("running", BY) == ("done", "running")
    assert await run.state.set_status("stopping", BY) == ("done", "stopping")
    assert await run.state.set_status("running", BY) == ("over", "stopping")
    assert await run.state.set_status("stopping", BY) == ("already", "stopping")


async def test_operator_can_change_the_mode_until_the_run_stops(live_run: Any) -> None:
    run = live_run.run
    assert (await run.state.read()).mode is None
    assert await run.state.set_mode("observe", BY) == ("done", "observe")
    assert (await run.state.read()).mode == "observe"
    assert (await run.evictions.barred()).standing.mode == "observe"
    (event,) = await live_run.last_events(1)
    assert event == {"type": "mode", "mode": "observe", "reason": "a test"}
    await run.state.set_status("stopping", BY)
    assert await run.state.set_mode("evict", BY) == ("over", "stopping")


async def test_ended_run_frees_the_federation_and_most_of_its_redis_memory(live_run: Any) -> None:
    run, runs = live_run.run, live_run.stores.runs
    await live_run.join("a", "b")
    await live_run.open(0, ["a"])
    await live_run.publish(RoundRecord(round=0, status="published"), b="it lied")
    await live_run.register("z")
    assert (await run.evictions.evict("z", BY)).answer == "evicted", "z is no member"
    await live_run.open(0, ["a"], kind="evaluate", phase="evaluating", deadline=NOW + 5)
    await run.uploads.accept(live_run.receipt("a", 0, "evaluation"))
    await run.state.end(live_run.fence, NOW + 9, segment=await live_run.records.seal_rest())
    summary = await run.state.summary()
    assert (summary.phase, summary.status, summary.deadline) == ("done", "finished", None)
    assert await run.tickets.outstanding() == {}
    assert await run.state.set_status("running", BY) == ("over", "finished")
    assert await run.state.set_mode("observe", BY) == ("over", "finished")
    assert await runs.current() is None
    info = await runs.entry(run.run)
    assert (info.state, info.ended_at, info.round) == ("finished", NOW + 9, 0)
    assert (info.clients, info.evicted) == (2, 1)
    redis = live_run.stores.redis.client
    assert await redis.hgetall(run.keys.history) == {}, "its entries are in a segment"
    assert list(await live_run.records.entries(0, 9)) == [0]
    assert await redis.ttl(run.keys.receipts(0)) == -1, "the measurements are kept"
    assert 0 < await redis.ttl(run.keys.events) <= 86_400, "events take up to 330 kB per run"
    large = [key async for key in redis.scan_iter(f"{run.keys.prefix}*") if "events" not in key]
    assert sum([await redis.memory_usage(key, samples=0) for key in large]) < 10_000


async def test_run_stopped_before_its_first_round_is_cancelled(live_run: Any) -> None:
    await live_run.run.state.set_status("stopping", BY)
    await live_run.run.state.end(live_run.fence, NOW)
    info = await live_run.stores.runs.entry(live_run.run.run)
    assert (info.state, info.reason) == ("cancelled", "a test")


async def test_run_that_waits_too_long_for_clients_is_cancelled(live_run: Any) -> None:
    await live_run.run.state.expire(live_run.fence, "too few clients")
    assert (await live_run.run.state.summary()).status == "stopping"
    await live_run.run.state.end(live_run.fence, NOW)
    info = await live_run.stores.runs.entry(live_run.run.run)
    assert (info.state, info.reason) == ("cancelled", "too few clients")


async def test_run_with_an_open_round_does_not_expire(live_run: Any) -> None:
    await live_run.join("a")
    await live_run.open(0, ["a"])
    await live_run.run.state.expire(live_run.fence, "too few clients")
    assert (await live_run.run.state.summary()).status == "running"


async def test_failed_run_keeps_its_reason(live_run: Any) -> None:
    await live_run.open(0, ["a"])
    await live_run.run.state.end(live_run.fence, NOW, "failed", "out of memory")
    info = await live_run.stores.runs.entry(live_run.run.run)
    assert (info.state, info.reason) == ("failed", "out of memory")
    assert (await live_run.run.state.summary()).status == "failed"
