"""The worker's lease, in a real Redis."""

from typing import Any

import pytest

from rampart_fl.services.aggregator.state.redis_access import LeaseLost
from rampart_fl.services.aggregator.state.stores import Stores

pytestmark = pytest.mark.anyio
NOW = 1_000_000.0


async def test_only_one_worker_holds_the_lease(stores: Stores) -> None:
    first = await stores.lease.acquire("a", 60, NOW)
    assert first is not None
    assert await stores.lease.acquire("b", 60, NOW) is None
    await stores.lease.renew("a", first, 60, NOW)
    await stores.lease.release("a", first)
    second = await stores.lease.acquire("b", 60, NOW)
    assert second is not None
    assert second > first


async def test_restarted_worker_reacquires_its_lease_and_fences_its_old_process(
    stores: Stores,
) -> None:
    before = await stores.lease.acquire("a", 60, NOW)
    after = await stores.lease.acquire("a", 60, NOW)
    assert before is not None
    assert after == before + 1
    with pytest.raises(LeaseLost):
        await stores.lease.renew("a", before, 60, NOW)


async def test_worker_that_lost_its_lease_cannot_take_it_from_a_namesake(
    stores: Stores,
) -> None:
    fence = await stores.lease.acquire("a", 60, NOW)
    assert fence is not None
    assert await stores.lease.acquire("a", 60, NOW, own=False) is None
    await stores.lease.release("a", fence)
    assert await stores.lease.acquire("a", 60, NOW, own=False) is not None, "once it is free"


async def test_lease_expires_if_it_is_not_renewed(stores: Stores) -> None:
    fence = await stores.lease.acquire("a", 0.02, NOW)
    assert fence is not None
    while (successor := await stores.lease.acquire("b", 60, NOW)) is None:
        pass  # The lease has not expired yet.
    assert successor == fence + 1
    with pytest.raises(LeaseLost):
        await stores.lease.renew("a", fence, 60, NOW)
    await stores.lease.release("a", fence)  # Does not release another worker's lease.
    assert await stores.lease.acquire("c", 60, NOW) is None


@pytest.mark.parametrize(
    ("deadline", "expected"), [(NOW + 100, NOW + 142.5), (None, None)], ids=["open", "none"]
)
async def test_time_without_a_worker_extends_the_deadline(
    live_run: Any, deadline: float | None, expected: float | None
) -> None:
    stores = live_run.stores
    await live_run.open(0, ["a"], deadline=deadline)
    await stores.lease.renew("worker", live_run.fence, 60, NOW + 10)
    await stores.lease.acquire("worker", 60, NOW + 52.5)
    assert (await live_run.run.state.summary()).deadline == expected
    await stores.lease.acquire("worker", 60, NOW + 52.5)  # A retried request adds nothing.
    assert (await live_run.run.state.summary()).deadline == expected
    await stores.lease.acquire("worker", 60, NOW + 40)  # A slow clock adds nothing either.
    assert (await live_run.run.state.summary()).deadline == expected
