"""Every transition of the federation's state, and every refusal, against a real Redis."""

import asyncio
from typing import Any

import pytest

from rampart_fl.services.aggregator.state.redis_access import Fenced
from rampart_fl.services.aggregator.state.round_store import RoundStore
from rampart_fl.shared.protocol.messages import RoundRecord

pytestmark = pytest.mark.anyio
NOW = 1_000_000.0
DIGEST = "d" * 64
OTHER = "e" * 64


# -- the lease ---------------------------------------------------------------------------------


async def test_one_worker_holds_the_lease(store: RoundStore) -> None:
    first = await store.acquire("a", 60, NOW)
    assert first is not None
    assert await store.acquire("b", 60, NOW) is None
    await store.renew("a", first, 60, NOW)
    await store.release("a", first)
    second = await store.acquire("b", 60, NOW)
    assert second is not None
    assert second > first


async def test_a_restarted_worker_takes_its_own_lease_back_and_fences_its_former_self(
    store: RoundStore,
) -> None:
    before = await store.acquire("a", 60, NOW)
    after = await store.acquire("a", 60, NOW)
    assert before is not None
    assert after == before + 1
    with pytest.raises(Fenced):
        await store.renew("a", before, 60, NOW)


async def test_a_worker_that_lost_the_lease_does_not_take_it_from_one_of_its_name(
    store: RoundStore,
) -> None:
    assert await store.acquire("a", 0.05, NOW) is not None
    assert await store.acquire("a", 60, NOW, own=False) is None
    await asyncio.sleep(0.1)
    assert await store.acquire("a", 60, NOW, own=False) is not None, "once it is free"


async def test_a_lease_ends_by_itself(store: RoundStore) -> None:
    fence = await store.acquire("a", 0.02, NOW)
    assert fence is not None
    while (successor := await store.acquire("b", 60, NOW)) is None:
        pass  # It has not run out yet.
    assert successor == fence + 1
    with pytest.raises(Fenced):
        await store.renew("a", fence, 60, NOW)
    await store.release("a", fence)  # Another's lease is not given back.
    assert await store.acquire("c", 60, NOW) is None


async def test_an_old_fence_writes_nothing(founded: Any) -> None:
    store, old = founded.store, founded.fence
    await founded.join("a")
    await founded.open(0, ["a"])
    current = await store.acquire("worker", 60, NOW)
    assert current is not None
    before = await dump(store)
    record = RoundRecord(round=0, status="published")
    for attempt in (
        store.found(old, OTHER, {}),
        store.open(old, 1, "collecting", NOW, None, {}, []),
        store.grant(old, "a", founded.ticket(0, "probe")),
        store.close(old, 0, "0-0"),
        store.publish(old, record, {"a": {"reason": "x"}}, {}, "0-0"),
        store.finish(old),
        store.answer_customize(old, "request", DIGEST),
    ):
        with pytest.raises(Fenced):
            await attempt
    assert await dump(store) == before


async def noise(store: RoundStore) -> None:
    """1,200 events in one go."""
    async with store.client.pipeline() as pipe:
        for number in range(1200):
            pipe.xadd(store.key("events"), {"type": "customize", "request": str(number)})
        await pipe.execute()


async def dump(store: RoundStore) -> dict[str, Any]:
    """Everything in the namespace."""
    found: dict[str, Any] = {}
    async for key in store.client.scan_iter(match=store.key("*")):
        found[key] = await _value(store, key)
    return found


async def _value(store: RoundStore, key: str) -> Any:
    read = {
        "hash": store.client.hgetall,
        "string": store.client.get,
        "stream": store.client.xrange,
    }
    return await read[await store.client.type(key)](key)


@pytest.mark.parametrize(
    ("deadline", "expected"), [(NOW + 100, NOW + 142.5), (None, None)], ids=["open", "none"]
)
async def test_time_without_a_worker_extends_the_deadline(
    founded: Any, deadline: float | None, expected: float | None
) -> None:
    store = founded.store
    await founded.open(0, ["a"], deadline=deadline)
    await store.renew("worker", founded.fence, 60, NOW + 10)
    await store.acquire("worker", 60, NOW + 52.5)
    assert (await store.brief()).deadline == expected
    await store.acquire("worker", 60, NOW + 52.5)  # A retried request adds nothing.
    assert (await store.brief()).deadline == expected
    await store.acquire("worker", 60, NOW + 40)  # Nor does a clock that runs behind.
    assert (await store.brief()).deadline == expected


# -- founding, opening, closing ----------------------------------------------------------------


async def test_a_federation_is_founded_once(founded: Any) -> None:
    store = founded.store
    federation = await store.federation()
    assert (federation.digest, federation.phase, federation.schema) == (DIGEST, "joining", "1")
    assert await store.found(founded.fence, DIGEST, {"phase": "done"}) == ("same", DIGEST)
    assert await store.found(founded.fence, OTHER, {"phase": "done"}) == ("other", DIGEST)
    assert (await store.brief()).phase == "joining"


async def test_opening_a_round_gives_tickets_and_happens_once(founded: Any) -> None:
    store = founded.store
    await founded.open(0, ["b", "a"], deadline=NOW + 5)
    federation = await store.federation()
    assert federation.selected == ("a", "b")
    assert (federation.round, federation.phase, federation.deadline) == (0, "collecting", NOW + 5)
    assert list(await store.tickets()) == ["a", "b"]
    await founded.open(0, ["c"])
    assert list(await store.tickets()) == ["a", "b"], "the same round opens once"
    assert (await founded.happened()).count("opened") == 1


async def test_the_next_round_takes_old_tickets_back_unless_they_are_kept(founded: Any) -> None:
    store = founded.store
    await founded.open(0, ["a", "b"])
    await founded.open(1, ["b", "c"])
    assert {c: t.round for c, t in (await store.tickets()).items()} == {"b": 1, "c": 1}
    await store.open(
        founded.fence, 2, "collecting", NOW, None, {"d": founded.ticket(2)}, ["d"], clear=False
    )
    assert {c: t.round for c, t in (await store.tickets()).items()} == {"b": 1, "c": 1, "d": 2}


async def test_an_evicted_client_gets_no_ticket(founded: Any) -> None:
    store = founded.store
    await founded.join("a", "b")
    assert await store.evict("a", {"reason": "x"}) == "evicted"
    await founded.open(0, ["a", "b"])
    await store.grant(founded.fence, "a", founded.ticket(0))
    assert list(await store.tickets()) == ["b"]


async def test_granting_keeps_what_is_outstanding_or_done(founded: Any) -> None:
    store = founded.store
    await founded.open(0, ["a", "b"])
    await store.grant(founded.fence, "a", founded.ticket(0, "probe"))
    assert (await store.ticket("a")).kind == "train"
    await store.accept(founded.receipt("b"))
    await store.grant(founded.fence, "b", founded.ticket(0))
    assert await store.ticket("b") is None, "its update for this round is in"
    await store.grant(founded.fence, "c", founded.ticket(0))
    assert (await store.ticket("c")).kind == "train"


async def test_closing_is_for_the_round_that_is_open(founded: Any) -> None:
    store = founded.store
    await founded.open(0, ["a"])
    await store.close(founded.fence, 1, "1-1")
    assert (await store.brief()).phase == "collecting"
    await store.close(founded.fence, 0, "2-2")
    await store.close(founded.fence, 0, "3-3")
    federation = await store.federation()
    assert (federation.phase, federation.closing) == ("aggregating", "2-2")


# -- publishing --------------------------------------------------------------------------------


async def test_publishing_writes_record_evictions_and_pointers_at_once(founded: Any) -> None:
    store = founded.store
    await founded.join("a", "b")
    await founded.open(0, ["a", "b"], deadline=NOW + 5)
    await store.accept(founded.receipt("a"))
    record = RoundRecord(round=0, status="published", participants=["a"])
    await founded.publish(record, b="too far out")
    federation = await store.federation()
    assert (federation.phase, federation.deadline) == ("published", None)
    assert federation.snapshot == {"global_model": DIGEST, "round": 0}
    assert await store.record(0) == record
    assert await store.records(0, 9) == [record]
    assert await store.evicted() == {"b": {"reason": "too far out"}}
    assert 0 < await store.client.ttl(store.key("receipts:0")) <= 86_400
    assert await store.receipt(0, "update", "a") == founded.receipt("a"), "repeats are answered"


async def test_publishing_again_changes_nothing(founded: Any) -> None:
    store = founded.store
    await founded.join("a")
    await founded.open(0, ["a"])
    record = RoundRecord(round=0, status="published")
    await founded.publish(record, a="first")
    events = await founded.happened()
    await founded.publish(record, a="second")
    assert await founded.happened() == events
    assert (await store.evicted())["a"]["reason"] == "first"


async def test_publishing_trims_events_that_are_accounted_for(founded: Any) -> None:
    store = founded.store
    await founded.open(0, ["a"])
    await noise(store)
    await founded.publish(RoundRecord(round=0, status="failed", reason="nobody came"))
    kept = await store.events("0-0", 0.001, count=10_000)
    assert len(kept) == 1000, "the newest stay for operators"
    assert kept[-1].type == "failed"


async def test_events_that_nobody_has_read_are_kept(founded: Any) -> None:
    store = founded.store
    await founded.open(0, ["a"])
    position = await store.last_event()
    await noise(store)
    record = RoundRecord(round=0, status="published")
    await store.publish(founded.fence, record, {}, {}, position)
    kept = await store.events("0-0", 0.001, count=10_000)
    assert kept[0].position == position
    assert len(kept) == 1202


async def test_events_are_dropped_but_for_the_last(store: RoundStore) -> None:
    for _ in range(30):
        await store.ask_customize("r", "a", DIGEST)
    await store.trim_events(10)
    assert len(await store.events("0-0", 0.001)) == 30, "whole nodes of the stream go"
    for _ in range(500):
        await store.ask_customize("r", "a", DIGEST)
    await store.trim_events(10)
    assert 10 <= len(await store.events("0-0", 0.001)) <= 130


async def test_finishing_ends_everything(founded: Any) -> None:
    store = founded.store
    await founded.open(0, ["a"], kind="evaluate", phase="evaluating", deadline=NOW + 5)
    await store.finish(founded.fence)
    brief = await store.brief()
    assert (brief.phase, brief.status, brief.deadline) == ("done", "finished", None)
    assert await store.tickets() == {}
    assert await store.set_status("running") == ("over", "finished")


async def test_an_answer_to_customize_is_found_by_its_request(founded: Any) -> None:
    store = founded.store
    await store.ask_customize("r1", "a", DIGEST)
    assert await store.customized("r1") is None
    await store.answer_customize(founded.fence, "r1", OTHER)
    assert await store.customized("r1") == OTHER
    assert 0 < await store.client.ttl(store.key("customized:r1")) <= 3600
    await store.answer_customize(founded.fence, "r2", DIGEST)
    assert await store.customized("r1") == OTHER
    assert not await store.client.exists(store.key("customized")), "each answer ends by itself"
