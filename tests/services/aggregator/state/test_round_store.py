"""Rounds that open, close and are published, in a real Redis."""

from typing import Any

import pytest

from rampart_fl.services.aggregator.state.snapshot import Snapshot
from rampart_fl.shared.protocol.messages import RoundRecord

pytestmark = pytest.mark.anyio
NOW = 1_000_000.0
DIGEST = "d" * 64
SNAPSHOT = Snapshot(global_model=DIGEST, reference=DIGEST)


async def test_opening_a_round_issues_tickets_and_is_idempotent(live_run: Any) -> None:
    run = live_run.run
    await live_run.open(0, ["b", "a"], deadline=NOW + 5)
    federation = await run.state.read()
    assert federation.selected == ("a", "b")
    assert (federation.round, federation.phase, federation.deadline) == (0, "collecting", NOW + 5)
    assert list(await run.tickets.outstanding()) == ["a", "b"]
    await live_run.open(0, ["c"])
    assert list(await run.tickets.outstanding()) == ["a", "b"], "the same round opens once"
    assert (await live_run.happened()).count("opened") == 1


async def test_opening_a_round_withdraws_old_tickets_unless_clear_is_false(live_run: Any) -> None:
    run = live_run.run
    await live_run.open(0, ["a", "b"])
    await live_run.open(1, ["b", "c"])
    assert {c: t.round for c, t in (await run.tickets.outstanding()).items()} == {
        "b": 1,
        "c": 1,
    }
    await run.rounds.open(
        live_run.fence, 2, "collecting", NOW, None, {"d": live_run.ticket(2)}, ["d"], clear=False
    )
    assert {c: t.round for c, t in (await run.tickets.outstanding()).items()} == {
        "b": 1,
        "c": 1,
        "d": 2,
    }


async def test_close_applies_only_once_and_only_to_the_open_round(live_run: Any) -> None:
    run = live_run.run
    await live_run.open(0, ["a"])
    await run.rounds.close(live_run.fence, 1, "1-1")
    assert (await run.state.summary()).phase == "collecting"
    await run.rounds.close(live_run.fence, 0, "2-2")
    await run.rounds.close(live_run.fence, 0, "3-3")
    federation = await run.state.read()
    assert (federation.phase, federation.closing) == ("aggregating", "2-2")


async def test_publishing_writes_record_evictions_and_snapshot_together(live_run: Any) -> None:
    stores = live_run.stores
    await live_run.join("a", "b")
    await live_run.open(0, ["a", "b"], deadline=NOW + 5)
    await live_run.run.uploads.accept(live_run.receipt("a"))
    record = RoundRecord(round=0, status="published", participants=["a"])
    await live_run.publish(record, b="too far out")
    federation = await live_run.run.state.read()
    assert (federation.phase, federation.deadline) == ("published", None)
    assert federation.snapshot == SNAPSHOT
    assert list(await live_run.records.entries(0, 9)) == [0]
    evicted = await live_run.run.evictions.evicted()
    assert {client: why.reason for client, why in evicted.items()} == {"b": "too far out"}
    assert 0 < await stores.redis.client.ttl(live_run.run.rounds.keys.receipts(0)) <= 86_400
    assert await live_run.run.uploads.receipt(0, "update", "a") == live_run.receipt("a"), (
        "repeats are answered"
    )


async def test_publishing_a_round_again_changes_nothing(live_run: Any) -> None:
    run = live_run.run
    await live_run.join("a")
    await live_run.open(0, ["a"])
    record = RoundRecord(round=0, status="published")
    await live_run.publish(record, a="first")
    events = await live_run.happened()
    await live_run.publish(record, a="second")
    assert await live_run.happened() == events
    assert (await run.evictions.evicted())["a"].reason == "first"


async def add_many_events(live_run: Any) -> None:
    """Adds 1,200 events to the stream."""
    async with live_run.stores.redis.client.pipeline() as pipe:
        for number in range(1200):
            pipe.xadd(live_run.run.events.key, {"type": "customize", "request": str(number)})
        await pipe.execute()


async def test_publishing_trims_processed_events_to_the_newest_1000(live_run: Any) -> None:
    await live_run.open(0, ["a"])
    await add_many_events(live_run)
    await live_run.publish(RoundRecord(round=0, status="failed", reason="nobody came"))
    kept = await live_run.run.events.read("0-0", 0.001, count=10_000)
    assert len(kept) == 1000, "the newest stay for operators"
    assert kept[-1].type == "failed"


async def test_publishing_keeps_unread_events(live_run: Any) -> None:
    await live_run.open(0, ["a"])
    position = await live_run.run.events.last_position()
    await add_many_events(live_run)
    record = RoundRecord(round=0, status="published")
    filed = await live_run.records.file(record)
    await live_run.run.rounds.publish(live_run.fence, filed, {}, SNAPSHOT, position)
    kept = await live_run.run.events.read("0-0", 0.001, count=10_000)
    assert kept[0].position == position
    assert len(kept) == 1202


async def test_abstentions_of_the_last_round_are_stored_and_emitted_as_an_event(
    live_run: Any,
) -> None:
    await live_run.open(0, ["a"])
    await live_run.quarantine(0, ("a", "b"))
    assert (await live_run.run.state.read()).abstained == ("a", "b")
    event, _ = await live_run.last_events(2)
    assert event == {"type": "abstained", "round": "0", "clients": "a b"}
    await live_run.open(1, ["a"])
    await live_run.quarantine(1)
    assert (await live_run.run.state.read()).abstained == ()
    assert (await live_run.happened()).count("abstained") == 1


async def test_tickets_end_with_the_round_unless_updates_are_still_accepted(live_run: Any) -> None:
    """A client that is late would otherwise get its ticket again, and upload in a loop."""
    run = live_run.run
    await live_run.open(0, ["a"])
    await run.rounds.close(live_run.fence, 0, "0-0")
    assert await run.tickets.of("a") is None
    assert await run.uploads.accept(live_run.receipt("a")) == ("late", None)
    await live_run.publish(RoundRecord(round=0, status="published"))
    await live_run.open(1, ["a"])
    await live_run.publish(RoundRecord(round=1, status="failed", reason="too few updates"))
    assert await run.tickets.of("a") is None, "a round that fails is not closed before"
    assert await run.uploads.accept(live_run.receipt("a", 1)) == ("late", None)
    assert await run.uploads.accept(live_run.receipt("a", 2)) == ("no-ticket", None)


@pytest.mark.parametrize("policy", ["buffered"])
async def test_buffered_tickets_outlive_the_round(live_run: Any) -> None:
    await live_run.open(0, ["a"])
    await live_run.run.rounds.close(live_run.fence, 0, "0-0")
    await live_run.publish(RoundRecord(round=0, status="published"))
    assert await live_run.run.tickets.of("a") is not None


async def test_receipts_of_evaluations_do_not_expire(live_run: Any) -> None:
    """The evaluation has the number of the last round, whose receipts expire."""
    run, redis = live_run.run, live_run.stores.redis.client
    await live_run.open(0, ["a"])
    await run.uploads.accept(live_run.receipt("a"))
    await live_run.publish(RoundRecord(round=0, status="published"))
    assert await redis.ttl(run.uploads.keys.receipts(0)) > 0
    await live_run.open(0, ["a"], kind="evaluate", phase="evaluating")
    assert await redis.ttl(run.uploads.keys.receipts(0)) == -1
    assert (await run.uploads.accept(live_run.receipt("a", kind="evaluation")))[0] == "accepted"
    assert await redis.ttl(run.uploads.keys.receipts(0)) == -1
