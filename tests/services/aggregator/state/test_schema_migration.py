"""Tests the migration from schema 1, with a dump that the version with schema 1 wrote."""

import json
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.aggregator.state.record_store import RecordStore
from rampart_fl.services.aggregator.state.redis_access import Fenced
from rampart_fl.services.aggregator.state.schema_migration import migrate
from rampart_fl.services.aggregator.state.snapshot import Snapshot
from rampart_fl.services.aggregator.state.stores import Stores
from rampart_fl.shared.errors import Unavailable
from rampart_fl.shared.protocol.messages import RoundRecord
from rampart_fl.shared.protocol.mixing import decode_mixing
from rampart_fl.shared.protocol.stored_rounds import StoredRound
from tests.schemas.stored import SCHEMA_1, restore

pytestmark = pytest.mark.anyio


class Restored:
    """A federation of schema 1, and the fencing token of a worker of this version."""

    def __init__(self, stores: Stores, blobs: Blobs, values: dict[str, Any]) -> None:
        self.stores = stores
        self.records = stores.records(blobs)
        self.values = values
        self.fence = 0

    async def migrate(self, records: RecordStore | None = None) -> None:
        await migrate(records or self.records, self.stores.lease.keys, self.fence)

    def expected(self) -> list[RoundRecord]:
        history = self.values["history"]
        return [RoundRecord.model_validate_json(history[n]) for n in sorted(history, key=int)]

    async def found(self) -> list[RoundRecord]:
        records = []
        for entry in (await self.records.entries(0, 10**9)).values():
            data = await self.records.record_json(entry)
            assert data is not None
            facts = dict(StoredRound.model_validate_json(data))
            if digest := facts.pop("mixing_digest"):
                with self.records.blobs.open(digest) as file:
                    facts["mixing"] = decode_mixing(file.read())
            records.append(RoundRecord(**facts))
        return records


@pytest.fixture
async def restored(redis_url: str, tmp_path: Path) -> AsyncIterator[Restored]:
    """The federation from the dump, in a separate namespace."""
    namespace = f"test-{secrets.token_hex(6)}"
    values = restore(SCHEMA_1, redis_url, namespace, tmp_path)
    stores = Stores.connect(redis_url, None, namespace)
    one = Restored(stores, Blobs(tmp_path), values)
    one.fence = await stores.lease.acquire("worker", 60, 0.0) or 0
    yield one
    await stores.aclose()


async def test_records_and_state_are_taken_over(restored: Restored) -> None:
    with pytest.raises(Unavailable, match="schema 1"):
        await restored.stores.run.read()
    await restored.migrate()
    expected = restored.expected()
    assert [record.round for record in expected] == [0, 1]
    assert any(record.mixing for record in expected)
    assert await restored.found() == expected
    federation = await restored.stores.run.read()
    assert federation is not None
    assert (federation.schema, federation.round, federation.phase) == ("2", 2, "collecting")
    old = json.loads(restored.values["federation"]["snapshot"])
    assert federation.snapshot == Snapshot.model_validate({**old, "schema_version": "2"})
    assert federation.snapshot.blobs() <= set(restored.records.blobs.digests())


async def test_a_second_takeover_changes_nothing(restored: Restored) -> None:
    await restored.migrate()
    client, keys = restored.stores.redis.client, restored.stores.rounds.keys
    before = await client.hgetall(keys.history), await client.hgetall(keys.federation)
    await restored.migrate()
    assert (await client.hgetall(keys.history), await client.hgetall(keys.federation)) == before


async def test_a_takeover_that_is_broken_off_begins_again(restored: Restored) -> None:
    """A worker that has lost the lease may have written blobs, but changes nothing in Redis."""
    old, restored.fence = restored.fence, restored.fence + 1
    with pytest.raises(Fenced):
        await restored.migrate()
    client, keys = restored.stores.redis.client, restored.stores.rounds.keys
    assert await client.hgetall(keys.history) == restored.values["history"]
    assert await client.hget(keys.federation, "schema") == "1"
    restored.fence = old
    await restored.migrate()
    assert await restored.found() == restored.expected()


async def test_a_long_history_becomes_segments(restored: Restored) -> None:
    client, keys = restored.stores.redis.client, restored.stores.rounds.keys
    first = json.loads(restored.values["history"]["0"])
    many = {str(number): json.dumps({**first, "round": number}) for number in range(130)}
    await client.hset(keys.history, mapping=many)
    restored.values["history"] = many
    await restored.migrate()
    assert sorted(map(int, await client.hkeys(keys.segments))) == [63, 127]
    assert sorted(map(int, await client.hkeys(keys.history))) == [128, 129]
    assert await restored.found() == restored.expected()
