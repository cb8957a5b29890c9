"""Tests of the records of finished rounds, with a real Redis and blobs."""

import os
import subprocess
import sys
import time
import zlib
from dataclasses import replace
from typing import Any

import pytest

from rampart_fl.services.aggregator.state.record_store import RecordStore
from rampart_fl.services.aggregator.state.redis_access import RedisAccess
from rampart_fl.services.aggregator.state.round_entry import ROUNDS
from rampart_fl.shared.protocol.messages import RoundRecord, VerdictRecord
from rampart_fl.shared.protocol.mixing import decode_mixing
from rampart_fl.shared.protocol.stored_rounds import StoredRound

pytestmark = pytest.mark.anyio
CLIENTS = [f"client-{number}" for number in range(5)]


def record(round_: int, status: str = "published") -> RoundRecord:
    """A record whose verdicts, weights and mixing weights differ from those of other rounds."""
    verdicts = [
        VerdictRecord(
            client=client,
            decision="accepted" if number else "rejected",
            detector="test",
            score=round_ + number / 3,
            threshold=None,
            reason="because",
        )
        for number, client in enumerate(CLIENTS)
    ]
    shares = {client: (round_ + 1) / (number + 3) for number, client in enumerate(CLIENTS)}
    mixing = dict.fromkeys(CLIENTS[:3], shares)
    return RoundRecord.model_validate(
        {"round": round_, "status": status, "participants": CLIENTS, "verdicts": verdicts}
        | {"weights": shares, "mixing": mixing, "closed_at": 1e9 + round_}
    )


async def publish(live_run: Any, records: RecordStore, *rounds: int) -> None:
    """Opens these rounds and publishes a record for each."""
    for number in rounds:
        await live_run.open(number, [])
        await published(live_run, records, record(number))


async def published(live_run: Any, records: RecordStore, one: RoundRecord) -> None:
    """Stores one record in blobs, and publishes its round."""
    filed = await records.file(one)
    snapshot = (await live_run.run.state.read()).snapshot
    await live_run.run.rounds.publish(live_run.fence, filed, {}, snapshot, "0-0")


async def read(records: RecordStore, round_: int) -> RoundRecord | None:
    """Reads a round's record and its mixing weights, and joins them as a reader would."""
    entry = await records.entry(round_)
    data = None if entry is None else await records.record_json(entry)
    if entry is None or data is None:
        return None
    facts = dict(StoredRound.model_validate_json(data))
    assert facts.pop("mixing_digest") == entry.mixing
    if entry.mixing is not None:
        with records.blobs.open(entry.mixing) as file:
            facts["mixing"] = decode_mixing(file.read())
    return RoundRecord(**facts)


async def in_redis(live_run: Any) -> int:
    """Number of bytes that the entries take according to Redis' `MEMORY USAGE`."""
    keys = live_run.run.rounds.keys
    return await live_run.stores.redis.client.memory_usage(keys.history, samples=0) or 0


async def test_published_records_are_read_back_unchanged(live_run: Any) -> None:
    await publish(live_run, live_run.records, 0)
    await live_run.open(1, [])
    failed = RoundRecord(round=1, status="failed", reason="nobody came", missing=["a"])
    await published(live_run, live_run.records, failed)
    assert await read(live_run.records, 0) == record(0)
    assert await read(live_run.records, 1) == failed
    assert await read(live_run.records, 2) is None


async def test_entries_are_read_in_order_across_gaps_and_segments(live_run: Any) -> None:
    rounds = [*range(2 * ROUNDS), 500, 507]
    await publish(live_run, live_run.records, *rounds)
    keys, client = live_run.run.rounds.keys, live_run.stores.redis.client
    assert sorted(map(int, await client.hkeys(keys.segments))) == [ROUNDS - 1, 2 * ROUNDS - 1]
    assert sorted(map(int, await client.hkeys(keys.history))) == [500, 507]
    entries = live_run.records.entries
    assert list(await entries(0, 999)) == rounds
    assert list(await entries(60, 70)) == list(range(60, 71))
    assert list(await entries(127, 505)) == [127, 500]
    assert await entries(128, 499) == {} == await entries(508, 999) == await entries(5, 4)
    for number in (0, 63, 64, 127, 500):
        assert await read(live_run.records, number) == record(number)
    assert await live_run.records.entry(300) is None


@pytest.mark.parametrize("bound", [1, 1000, 5000])
async def test_entries_in_redis_never_exceed_the_memory_bound(live_run: Any, bound: int) -> None:
    """Every round stays readable, whatever the bound is."""
    records = replace(live_run.records, bound=bound)
    held = []
    for number in range(40):
        await publish(live_run, records, number)
        held.append(await in_redis(live_run))
    assert max(held) <= bound
    assert (max(held) > 0) == (bound > 1)
    for number in range(40):
        assert await read(records, number) == record(number)


class Moving(RedisAccess):
    """A connection that, after its first answer, publishes the round that moves all entries."""

    def __init__(self, live_run: Any) -> None:
        super().__init__(live_run.stores.redis.client)
        self._founded = live_run
        self._calls = 0

    async def ask(self, command: str, *args: Any, **options: Any) -> Any:
        answer = await super().ask(command, *args, **options)
        self._calls += 1
        if self._calls == 1:
            await publish(self._founded, self._founded.records, ROUNDS)
        return answer


async def test_reader_misses_no_entry_while_entries_move_to_a_segment(live_run: Any) -> None:
    await publish(live_run, live_run.records, *range(ROUNDS))
    moving = replace(live_run.records, redis=Moving(live_run))
    assert list(await moving.entries(0, ROUNDS - 1)) == list(range(ROUNDS))
    keys, client = live_run.run.rounds.keys, live_run.stores.redis.client
    assert await client.hkeys(keys.history) == [str(ROUNDS)], "the entries did move"


async def test_blob_digests_are_complete_while_entries_move_to_a_segment(live_run: Any) -> None:
    await publish(live_run, live_run.records, *range(ROUNDS))
    before = await live_run.records.blob_digests()
    assert len(before) == 2 * ROUNDS
    assert before <= await replace(live_run.records, redis=Moving(live_run)).blob_digests()


async def test_only_the_newest_records_are_kept_if_a_limit_is_set(live_run: Any) -> None:
    records = replace(live_run.records, kept=10)
    await publish(live_run, records, *range(ROUNDS + 10))
    assert await read(records, 0) == record(0), "a segment goes as a whole"
    await publish(live_run, records, *range(ROUNDS + 10, 2 * ROUNDS + 1))
    assert await read(records, ROUNDS - 1) is None
    old = await live_run.records.entries(0, 999)
    assert list(old) == list(range(ROUNDS, 2 * ROUNDS + 1))
    unswept = set(records.blobs.digests())
    records.blobs.sweep(await records.blob_digests(), time.time() + 1)
    assert set(records.blobs.digests()) == await records.blob_digests() < unswept
    assert await read(records, ROUNDS) == record(ROUNDS)


async def test_open_record_can_be_read_to_its_end_after_a_sweep(live_run: Any) -> None:
    await publish(live_run, live_run.records, 0)
    entry = await live_run.records.entry(0)
    with live_run.records.blobs.open(entry.record) as file:
        first = file.read(1)
        live_run.records.blobs.sweep(set(), time.time() + 1)
        assert StoredRound.model_validate_json(zlib.decompress(first + file.read())).round == 0
    assert await live_run.records.record_json(entry) is None


async def test_blob_digests_raises_an_error_if_a_segment_is_missing(live_run: Any) -> None:
    await publish(live_run, live_run.records, *range(ROUNDS + 1))
    (segment,) = await live_run.stores.redis.client.hvals(live_run.run.rounds.keys.segments)
    live_run.records.blobs.delete([segment])
    with pytest.raises(FileNotFoundError):
        await live_run.records.blob_digests()
    assert list(await live_run.records.entries(0, ROUNDS)) == [ROUNDS]


async def late(records: RecordStore, *rounds: int) -> dict[int, list[str]]:
    """The late clients of these rounds; entries and records must agree on them."""
    entries = await records.entries(0, 999)
    for number in rounds:
        assert await records.entry(number) == entries[number]
        data = await records.record_json(entries[number])
        assert data is not None
        assert StoredRound.model_validate_json(data).late == entries[number].late
    return {number: entries[number].late for number in rounds}


async def test_late_uploads_appear_in_entries_and_records(live_run: Any) -> None:
    records, note = live_run.records, live_run.run.uploads.note_late
    away = record(0).model_copy(update={"missing": ["a", "b", "c"]})
    await live_run.open(0, [])
    await note("a", 0)  # The round is open, so no upload for it is late.
    await live_run.run.rounds.close(live_run.fence, 0, "0-0")
    await note("b", 0)
    await published(live_run, records, away)
    assert await late(records, 0) == {0: ["b"]}
    for _ in range(2):
        await note("a", 0)
    await note(CLIENTS[0], 0)  # Its first update was in time, and has a verdict.
    await note("a", 7)
    assert await late(records, 0) == {0: ["a", "b"]}
    assert (await live_run.happened()).count("late") == 3

    for number in range(1, ROUNDS):
        await publish(live_run, records, number)
    await live_run.open(ROUNDS, [])
    await published(live_run, records, away.model_copy(update={"round": ROUNDS}))
    keys, client = live_run.run.rounds.keys, live_run.stores.redis.client
    assert await client.hkeys(keys.history) == [str(ROUNDS)]
    assert await client.exists(keys.late) == 0, "the notes moved with their entries"
    await note("c", 0)  # Its entry is in a blob, which does not change.
    await note("c", ROUNDS)
    table = {0: ["a", "b"], ROUNDS: ["c"]}
    assert await late(records, 0, ROUNDS) == table
    await live_run.run.state.end(live_run.fence, 0.0, segment=await records.seal_rest())
    assert await client.exists(keys.late, keys.history) == 0
    assert await late(records, 0, ROUNDS) == table


async def test_late_uploads_count_towards_the_memory_bound(live_run: Any) -> None:
    records = replace(live_run.records, bound=3500)
    clients = [f"{number:050}" for number in range(20)]
    for number in range(6):
        await live_run.open(number, [])
        one = RoundRecord(round=number, status="published", missing=clients)
        await published(live_run, records, one)
        for client in clients:
            await live_run.run.uploads.note_late(client, number)
        keys = live_run.run.rounds.keys
        assert await live_run.stores.redis.client.hlen(keys.late) == 1
    assert await late(records, *range(6)) == dict.fromkeys(range(6), clients)


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.aggregator.state.stores import Stores
from rampart_fl.shared.protocol.messages import RoundRecord

async def main():
    url, namespace, folder, record = sys.argv[1:]
    records = Stores.connect(url, None, namespace).of_run("test-1").records(Blobs(Path(folder)))
    await records.file(RoundRecord.model_validate_json(record))
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.mark.parametrize("before", [1, ROUNDS])
async def test_worker_killed_before_it_publishes_loses_no_record_and_leaks_no_blob(
    live_run: Any, redis_url: str, before: int
) -> None:
    """This also holds if the round would have moved entries to a segment."""
    records = live_run.records
    await publish(live_run, records, *range(before))
    whole = set(records.blobs.digests())
    await live_run.open(before, [])
    dead = record(before).model_copy(update={"closed_at": 5.0})
    namespace = live_run.stores.keys.prefix.strip("{}:")
    folder = str(records.blobs.folder)
    child = subprocess.run(
        [sys.executable, "-c", KILLED, redis_url, namespace, folder, dead.model_dump_json()],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert child.returncode == -9
    left = set(records.blobs.digests()) - whole
    assert len(left) == (3 if before == ROUNDS else 2), "the record, its weights, the segment"
    assert await records.entry(before) is None
    assert not left & await records.blob_digests()

    await published(live_run, records, record(before))
    records.blobs.sweep(await records.blob_digests(), time.time() + 1)
    assert set(records.blobs.digests()) == await records.blob_digests()
    for number in range(before + 1):
        assert await read(records, number) == record(number)


async def test_receipts_of_old_rounds_are_deleted(live_run: Any) -> None:
    await live_run.join("a")
    for number in range(66):
        await live_run.open(number, ["a"])
        await live_run.run.uploads.accept(live_run.receipt("a", number))
        await published(live_run, live_run.records, record(number))
    rounds = {receipt.round for receipt in await live_run.run.uploads.every_receipt()}
    assert rounds == set(range(2, 66))
