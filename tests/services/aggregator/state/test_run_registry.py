"""The registry of runs and their queue, in a real Redis."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from rampart_fl.services.aggregator.state.audit_log import Attribution
from rampart_fl.services.aggregator.state.keys import SCHEMA
from rampart_fl.services.aggregator.state.redis_access import LeaseLost
from rampart_fl.services.aggregator.state.stores import Stores
from rampart_fl.shared.experiment import Experiment

pytestmark = pytest.mark.anyio
NOW = 1_000_000.0
BY = Attribution("ada", "a test", NOW)


async def test_runs_are_queued_in_order_of_submission(
    stores: Stores, experiment: Experiment
) -> None:
    runs = stores.runs
    assert (await runs.submission_count(), await runs.entries(), await runs.queue()) == (0, [], [])
    first, new = await runs.submit(experiment, "a", BY)
    assert new
    second, _ = await runs.submit(experiment, "b", BY, name="tuesday", wait_until=NOW + 60)
    assert [first.run, second.run] == ["test-1", "tuesday-2"]
    assert await runs.queue() == ["test-1", "tuesday-2"]
    assert await runs.entries() == [first, second]
    assert (first.state, first.submitted_by, first.submitted_at) == ("queued", "ada", NOW)
    assert (first.experiment, first.rounds) == (experiment.digest(), 3)
    assert second.wait_until == NOW + 60
    assert await runs.experiment("tuesday-2") == experiment
    assert await runs.submission_count() == 2
    assert [event.type for event in await stores.events.read("0-0", 0.001)] == ["submitted"] * 2


async def test_repeated_submission_creates_only_one_run(
    stores: Stores, experiment: Experiment
) -> None:
    info, _ = await stores.runs.submit(experiment, "same", BY)
    assert await stores.runs.submit(experiment, "same", BY, name="other") == (info, False)
    assert await stores.runs.queue() == [info.run]
    assert (await stores.audit.end())[0] == 1


async def test_concurrent_submissions_get_distinct_run_numbers(
    stores: Stores, experiment: Experiment, redis_url: str
) -> None:
    namespace = stores.keys.prefix.strip("{}:")
    async with aclosing(Stores.connect(redis_url, None, namespace)) as other:
        result = await asyncio.gather(
            *(
                (stores, other)[n % 2].runs.submit(experiment, f"key-{n // 3}", BY)
                for n in range(18)
            )
        )
    assert sorted(info.run for info, new in result if new) == [f"test-{n}" for n in range(1, 7)]
    assert len(await stores.runs.entries()) == len(await stores.runs.queue()) == 6


async def test_queued_run_can_be_cancelled(live_run: Any, experiment: Experiment) -> None:
    runs = live_run.stores.runs
    waiting, _ = await runs.submit(experiment, "b", BY)
    assert await runs.cancel(waiting.run, BY) == "cancelled"
    assert await runs.queue() == []
    entry = await runs.entry(waiting.run)
    assert (entry.state, entry.reason, entry.ended_at) == ("cancelled", "a test", NOW)
    assert await runs.cancel(waiting.run, BY) == "cancelled"
    assert await runs.cancel(live_run.run.run, BY) == "running"
    assert await runs.cancel("test-9", BY) == "unknown"


async def test_worker_can_drop_a_queued_run_but_not_a_running_one(
    live_run: Any, experiment: Experiment
) -> None:
    runs = live_run.stores.runs
    waiting, _ = await runs.submit(experiment, "b", BY)
    with pytest.raises(LeaseLost):
        await runs.drop(live_run.fence - 1, waiting.run, NOW, "failed", "no such model")
    await runs.drop(live_run.fence, waiting.run, NOW, "failed", "no such model")
    entry = await runs.entry(waiting.run)
    assert (entry.state, entry.reason) == ("failed", "no such model")
    assert await runs.queue() == []
    await runs.drop(live_run.fence, live_run.run.run, NOW, "failed", "too late")
    assert (await runs.entry(live_run.run.run)).state == "running"


async def test_deleting_a_run_removes_all_of_its_keys_and_no_others(
    live_run: Any, experiment: Experiment
) -> None:
    """The id of one run is a prefix of the other run's id."""
    runs = live_run.stores.runs
    before = await live_run.dump()
    other, _ = await runs.submit(experiment, "b", BY, name="test-1")
    assert other.run == "test-1-2"
    await live_run.stores.of_run(other.run).customizations.request("r", "a", "d" * 64)
    assert await runs.delete("test-1", BY) == "current"
    assert await runs.delete(other.run, BY) == "deleted"
    assert await runs.delete(other.run, BY) == "unknown"
    assert (await runs.entry(other.run), await runs.queue()) == (None, [])
    assert await runs.deleted_runs() == [other.run]
    await runs.forget(other.run)
    assert await runs.deleted_runs() == []
    after = await live_run.dump()
    gone = ("events", "audit", "audit_head", "run_counter")
    changed = {key for key in before | after if before.get(key) != after.get(key)}
    assert changed == {live_run.stores.keys.prefix + name for name in gone}
    again, new = await runs.submit(experiment, "b", BY)
    assert (again.run, new) == ("test-3", True), "its number is not used again"


async def test_only_the_worker_with_the_lease_marks_the_federation_as_ready(stores: Stores) -> None:
    fence = await stores.lease.acquire("worker", 60, NOW)
    assert fence is not None
    assert await stores.runs.schema() is None
    with pytest.raises(LeaseLost):
        await stores.runs.set_ready(fence - 1)
    await stores.runs.set_ready(fence)
    assert await stores.runs.schema() == SCHEMA
