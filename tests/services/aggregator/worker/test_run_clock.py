"""The clock of a run, with a real Redis."""

import time
from typing import Any

import pytest

from rampart_fl.services.aggregator.worker.run_clock import RunClock

pytestmark = pytest.mark.anyio


async def test_clock_continues_redis_time_without_steps(
    live_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = iter([100.0, 100.0, 107.5])
    clock = RunClock(live_run.stores.redis, lambda: next(moments))
    before = await live_run.stores.redis.time()
    await clock.read()
    after = await live_run.stores.redis.time()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    first = clock.now()
    assert before <= first <= after
    assert clock.now() == pytest.approx(first + 7.5)


async def test_each_reading_follows_redis_clock(live_run: Any) -> None:
    """For example, this machine may have been suspended, which stops its monotonic clock."""
    moments = iter([100.0, 100.0, 50.0, 50.0])
    clock = RunClock(live_run.stores.redis, lambda: next(moments))
    await clock.read()
    first = clock.now()
    await clock.read()
    assert 0 <= clock.now() - first < 50


async def test_clock_that_was_never_read_tells_no_time(live_run: Any) -> None:
    with pytest.raises(AssertionError, match="has not been read"):
        RunClock(live_run.stores.redis).now()
