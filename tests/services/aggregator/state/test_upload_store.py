"""Uploads and their receipts, in a real Redis."""

from typing import Any, Literal

import pytest

from rampart_fl.services.aggregator.state.audit_log import Attribution
from rampart_fl.services.aggregator.state.upload_store import KEPT
from rampart_fl.shared.protocol.messages import Receipt, RoundRecord

pytestmark = pytest.mark.anyio
DIGEST = "d" * 64
OTHER = "e" * 64


async def test_update_is_accepted_once_and_different_bytes_conflict(live_run: Any) -> None:
    run = live_run.run
    await live_run.open(0, ["a"])
    receipt = Receipt(
        round=0,
        kind="update",
        client="a",
        digest=DIGEST,
        samples=3,
        metrics={"loss": 0.1234567890123456, "gap": -1e-300},
    )
    assert await run.uploads.accept(receipt) == ("accepted", receipt)
    assert await run.tickets.of("a") is None
    later = receipt.model_copy(update={"samples": 4})
    assert await run.uploads.accept(later) == ("accepted", receipt), (
        "the first receipt stands, exactly"
    )
    conflict = receipt.model_copy(update={"digest": OTHER})
    assert await run.uploads.accept(conflict) == ("conflict", None)
    assert await run.uploads.receipts(0) == [receipt]
    assert (await live_run.happened()).count("update") == 1


@pytest.mark.parametrize(
    ("client", "round_", "kind", "answer"),
    [
        ("stranger", 1, "update", "no-ticket"),
        ("a", 0, "update", "late"),
        ("a", 2, "update", "no-ticket"),
        ("a", 1, "probe", "no-ticket"),
        ("a", 1, "evaluation", "no-ticket"),
        ("barred", 1, "update", "evicted"),
    ],
)
async def test_uploads_without_a_valid_ticket_are_refused(
    live_run: Any, client: str, round_: int, kind: str, answer: str
) -> None:
    run = live_run.run
    await live_run.join("a", "barred")
    await live_run.open(0, ["a"])
    await live_run.open(1, ["a", "barred"])
    await run.evictions.evict("barred", Attribution("ada", "a test", 0.0))
    assert await run.uploads.accept(live_run.receipt(client, round_, kind)) == (answer, None)
    assert await run.uploads.every_receipt() == []


@pytest.mark.parametrize(
    ("policy", "phase", "answer"),
    [
        ("sync", "aggregating", "late"),
        ("sync", "published", "late"),
        ("buffered", "aggregating", "accepted"),
        ("buffered", "published", "accepted"),
    ],
)
async def test_only_the_buffered_policy_accepts_updates_after_a_round_closes(
    live_run: Any, phase: str, answer: str
) -> None:
    await live_run.open(0, ["a"])
    await live_run.run.rounds.close(live_run.fence, 0, "0-0")
    if phase == "published":
        await live_run.publish(RoundRecord(round=0, status="published"))
    assert (await live_run.run.uploads.accept(live_run.receipt("a")))[0] == answer


async def test_final_evaluation_accepts_evaluations_but_no_updates(live_run: Any) -> None:
    run = live_run.run
    await live_run.open(0, ["a"], kind="evaluate", phase="evaluating")
    assert (await run.uploads.accept(live_run.receipt("a", kind="update")))[0] == "late"
    assert (await run.uploads.accept(live_run.receipt("a", kind="evaluation")))[0] == "accepted"
    await run.state.end(live_run.fence, 0.0)
    assert (await run.uploads.accept(live_run.receipt("b", kind="update")))[0] == "late"
    assert (await run.uploads.accept(live_run.receipt("a", kind="evaluation")))[0] == "accepted"
    assert (await run.uploads.accept(live_run.receipt("b", kind="evaluation")))[0] == "no-ticket"


async def test_probe_and_update_of_one_round_have_separate_receipts(live_run: Any) -> None:
    run = live_run.run
    await live_run.open(0, ["a"], kind="probe")
    await run.uploads.accept(live_run.receipt("a", kind="probe"))
    await run.tickets.grant(live_run.fence, "a", live_run.ticket(0))
    await run.uploads.accept(live_run.receipt("a", digest=OTHER))
    assert [(r.kind, r.digest) for r in await run.uploads.receipts(0)] == [
        ("probe", DIGEST),
        ("update", OTHER),
    ]
    assert len(await run.uploads.every_receipt()) == 2


@pytest.mark.parametrize("policy", ["buffered"])
@pytest.mark.parametrize("status", ["published", "failed"])
async def test_receipts_expire_even_if_the_first_upload_follows_the_round(
    live_run: Any, status: Literal["published", "failed"]
) -> None:
    run, redis = live_run.run, live_run.stores.redis.client
    await live_run.open(0, ["a", "b"])
    await live_run.publish(RoundRecord(round=0, status=status))
    assert (await run.uploads.accept(live_run.receipt("a")))[0] == "accepted"
    assert 0 < await redis.ttl(run.uploads.keys.receipts(0)) <= KEPT
    await redis.delete(run.uploads.keys.receipts(0))
    await run.rounds.open(live_run.fence, 1, "collecting", 0.0, None, {}, [], clear=False)
    assert (await run.uploads.accept(live_run.receipt("b")))[0] == "accepted"
    assert 0 < await redis.ttl(run.uploads.keys.receipts(0)) <= KEPT
