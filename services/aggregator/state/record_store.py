"""The records of a run's finished rounds, kept as blobs whose digests are in Redis.

A round has up to two blobs: its record as compressed JSON, and its mixing weights as a tensor.
Redis has an entry for each of the newest rounds, with the digests of the round's blobs (see
round_entry.py). Redis holds at most `ROUNDS` entries, which together take at most `bound` bytes.
If a new entry would exceed one of these limits, the older entries move to a blob, called a
*segment*. For the rounds in a segment, Redis keeps only the segment's digest, so an older round
takes only a few bytes in Redis.

In addition to the entries, Redis has notes on clients whose update came after the end of a round.
Code that reads an entry adds the notes to the entry. When an entry moves to a segment, the notes on
the entry's round become part of the entry. The newest round's entry usually stays in Redis, so that
notes on late updates can be added. The newest round's entry moves to a segment only if this entry
alone exceeds `bound` bytes.
"""

import asyncio
import json
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from rampart_fl.services.aggregator.state.blobs import Blobs, converted_disk_errors
from rampart_fl.services.aggregator.state.keys import RunKeys
from rampart_fl.services.aggregator.state.redis_access import RedisAccess
from rampart_fl.services.aggregator.state.round_entry import (
    ROUNDS,
    RoundEntry,
    pack_segment,
    parse_segment,
    size_of,
)
from rampart_fl.services.aggregator.state.stored_values import read_model
from rampart_fl.shared.protocol.messages import RoundRecord
from rampart_fl.shared.protocol.mixing import Mixing, encode_mixing

T = TypeVar("T")
BOUND = 64 << 20
"""Default maximum size in bytes of the entries in Redis."""
NONE: Mapping[int, str] = {}
"""No late clients."""


@dataclass(frozen=True)
class FiledRecord:
    """A record in durable blobs, and the values to write to Redis when the round is published."""

    round: int
    status: Literal["published", "failed"]
    entry: str
    segment: str | None = None
    """Digest of the segment to which entries move; None if all entries stay in Redis."""
    moved: tuple[int, ...] = ()
    """The rounds whose entries move to the segment, in order."""
    forgotten: tuple[int, ...] = ()
    """The segments to delete; each segment is given by the number of its last round."""


@dataclass(frozen=True)
class RecordStore:
    """Stores and reads the records of one run.

    Args:
        redis: the connection to Redis.
        keys: the keys of the run.
        blobs: the store of the records.
        disk: threads that read and write blobs; by default, the threads of asyncio.
        bound: maximum size in bytes of the entries in Redis.
        kept: minimum number of newest rounds whose records are kept; None to keep all records.
    """

    redis: RedisAccess
    keys: RunKeys
    blobs: Blobs
    disk: Executor | None = None
    bound: int = BOUND
    kept: int | None = None

    # -- writing -------------------------------------------------------------------------------

    async def file(self, record: RoundRecord) -> FiledRecord:
        """Writes a record to durable blobs; readers find the record once the round is published."""
        facts = record.model_dump_json(exclude={"mixing"})
        entry = await self._on_disk(self._write, json.loads(facts), record.mixing)
        entries, late = await self._read_maps()
        entries[record.round] = entry
        if not self.full(entries, late):
            return FiledRecord(record.round, record.status, entry)
        alone = self.full({record.round: entry}, late)
        moved = {n: entries[n] for n in sorted(entries) if alone or n != record.round}
        segment = await self.seal(_with_late(moved, late))
        forgotten: tuple[int, ...] = ()
        if self.kept is not None:
            lasts = await self.redis.ask("hkeys", self.keys.segments)
            forgotten = tuple(sorted(n for n in map(int, lasts) if n <= record.round - self.kept))
        return FiledRecord(record.round, record.status, entry, segment, tuple(moved), forgotten)

    async def file_json(self, text: str) -> str:
        """Writes a round's record, given as JSON, to durable blobs; returns the round's entry."""

        def write() -> str:
            facts = json.loads(text)
            return self._write(facts, facts.pop("mixing", {}))

        return await self._on_disk(write)

    def _write(self, facts: Mapping[str, Any], mixing: Mixing) -> str:
        weights = self.blobs.put(encode_mixing(mixing)) if mixing else None
        text = json.dumps({**facts, "mixing_digest": weights})
        record = self.blobs.put(zlib.compress(text.encode()))
        return RoundEntry.of(record, weights, facts).model_dump_json()

    def full(self, entries: Mapping[int, str], late: Mapping[int, str] = NONE) -> bool:
        """Whether the entries exceed the limits: `ROUNDS` entries, or `bound` bytes.

        If so, some entries must move to a segment.
        """
        texts = [*entries.items(), *late.items()]
        return len(entries) > ROUNDS or sum(size_of(*each) for each in texts) > self.bound

    async def seal(self, entries: Mapping[int, str]) -> str:
        """Writes the entries to a new segment; returns the segment's digest."""
        return await self._on_disk(lambda: self.blobs.put(pack_segment(entries)))

    async def seal_rest(self) -> tuple[int, str] | None:
        """At the end of the run, writes a segment with all entries that are still in Redis.

        Returns:
            The last round in the segment, and the segment's digest; None if Redis has no entries.
        """
        entries, late = await self._read_maps()
        return (max(entries), await self.seal(_with_late(entries, late))) if entries else None

    async def _read_maps(self) -> tuple[dict[int, str], dict[int, str]]:
        """Two maps from Redis, both keyed by round: the entries as JSON, and the late clients."""
        # Notes on late clients are read before the entries. In the other order, an entry could move
        # to a segment between the two reads, and its notes would be missing.
        late = await self.redis.ask("hgetall", self.keys.late)
        held = await self.redis.ask("hgetall", self.keys.history)
        return {int(n): held[n] for n in held}, {int(n): late[n] for n in late}

    # -- reading -------------------------------------------------------------------------------

    async def entries(self, first: int, last: int) -> dict[int, RoundEntry]:
        """The entries of rounds `first` to `last` that are still kept, in order of round."""
        # The entries in Redis are read before the segments. Entries move only from Redis to
        # segments, so this method also finds an entry that moves while the method reads.
        texts, late = await self._read_maps()
        entries = {n: read_model(RoundEntry, texts[n]) for n in texts if first <= n <= last}
        digests = await self._segments(first, last)
        for segment in await asyncio.gather(*map(self._read_segment, digests)):
            entries |= {number: one for number, one in segment.items() if first <= number <= last}
        return {
            n: entries[n].with_late(late[n]) if n in late else entries[n] for n in sorted(entries)
        }

    async def entry(self, round_: int) -> RoundEntry | None:
        """A finished round's entry; None if the round has not ended or is no longer kept."""
        late = await self.redis.ask("hget", self.keys.late, str(round_))
        raw = await self.redis.ask("hget", self.keys.history, str(round_))
        if raw is not None:
            return read_model(RoundEntry, raw).with_late(late or "")
        for digest in await self._segments(round_, round_):
            return (await self._read_segment(digest)).get(round_)
        return None

    async def record_json(self, entry: RoundEntry) -> bytes | None:
        """The record of an entry, as JSON of a `StoredRound`; None if the record was deleted."""

        def read() -> bytes:
            with self.blobs.open(entry.record) as file:
                data = zlib.decompress(file.read())
            late = entry.late
            return json.dumps({**json.loads(data), "late": late}).encode() if late else data

        try:
            return await self._on_disk(read)
        except FileNotFoundError:
            return None

    async def blob_digests(self) -> set[str]:
        """Digests of all blobs of this store: records, mixing weights and segments.

        Raises:
            FileNotFoundError: a segment is missing, so the digests in its entries are unknown.
        """
        held = await self.redis.ask("hvals", self.keys.history)
        segments = await self.redis.ask("hvals", self.keys.segments)
        entries = [read_model(RoundEntry, entry) for entry in held]
        digests = set(segments).union(*(entry.digests for entry in entries))
        for segment in segments:
            loaded = await self._on_disk(self._load_segment, segment)
            digests.update(*(entry.digests for entry in loaded.values()))
        return digests

    async def _segments(self, first: int, last: int) -> list[str]:
        """Digests of the segments that may have entries of rounds `first` to `last`, in order."""
        raw = await self.redis.ask("hgetall", self.keys.segments)
        ends = sorted((int(number), digest) for number, digest in raw.items())
        digests = []
        for end, digest in ends:
            if end >= first:
                digests.append(digest)
            if end >= last:
                break
        return digests

    async def _read_segment(self, digest: str) -> dict[int, RoundEntry]:
        try:
            return await self._on_disk(self._load_segment, digest)
        except FileNotFoundError:
            return {}  # The segment was deleted after this process had read its digest.

    def _load_segment(self, digest: str) -> dict[int, RoundEntry]:
        with self.blobs.open(digest) as file:
            return parse_segment(file.read())

    async def _on_disk(self, function: Callable[..., T], *args: Any) -> T:
        loop = asyncio.get_running_loop()
        with converted_disk_errors(FileNotFoundError):
            return await loop.run_in_executor(self.disk, function, *args)


def _with_late(entries: Mapping[int, str], late: Mapping[int, str]) -> dict[int, str]:
    """The entries as JSON, in order of round; each entry includes its late clients."""

    def noted(number: int) -> str:
        if number not in late:
            return entries[number]
        entry = read_model(RoundEntry, entries[number])
        return entry.with_late(late[number]).model_dump_json()

    return {number: noted(number) for number in sorted(entries)}
