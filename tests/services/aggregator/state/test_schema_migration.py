"""Tests of the migration from older schemas, with dumps that older versions wrote."""

import json
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rampart_fl.services.aggregator.state.redis_access import LeaseLost
from rampart_fl.services.aggregator.state.run_blobs import RunBlobs
from rampart_fl.services.aggregator.state.schema_migration import migrate
from rampart_fl.services.aggregator.state.snapshot import Snapshot
from rampart_fl.services.aggregator.state.stores import Stores
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.protocol.audit import check_chain
from rampart_fl.shared.protocol.messages import RoundRecord
from rampart_fl.shared.protocol.mixing import decode_mixing
from rampart_fl.shared.protocol.stored_rounds import StoredRound
from tests.schemas.former_states import SCHEMA_1, SCHEMA_2, restore

pytestmark = pytest.mark.anyio
RUN = "scripted-1"


class Restored:
    """A federation of an older schema, and the fencing token of a worker of this version."""

    def __init__(self, stores: Stores, blobs: RunBlobs, values: dict[str, Any]) -> None:
        self.stores = stores
        self.blobs = blobs
        self.values = values
        self.fence = 0
        self.run = stores.of_run(RUN)

    async def migrate(self) -> None:
        await migrate(self.stores, self.blobs, self.fence)

    async def records(self) -> list[RoundRecord]:
        records, store = [], self.run.records(self.blobs.of_run(RUN))
        for entry in (await store.entries(0, 10**9)).values():
            data = await store.record_json(entry)
            assert data is not None
            facts = dict(StoredRound.model_validate_json(data))
            if digest := facts.pop("mixing_digest"):
                with store.blobs.open(digest) as file:
                    facts["mixing"] = decode_mixing(file.read())
            records.append(RoundRecord(**facts))
        return records

    async def dump(self) -> dict[str, Any]:
        """Everything in the namespace, except for the lease."""
        client, prefix = self.stores.redis.client, self.stores.keys.prefix
        values = {key: await client.dump(key) async for key in client.scan_iter(match=f"{prefix}*")}
        return {key: data for key, data in values.items() if not key.endswith(("lease", "fence"))}


def expected(history: dict[str, str] | None = None) -> list[RoundRecord]:
    """The records that all dumps contain, read from the history of schema 1."""
    history = history or json.loads(SCHEMA_1.read_text())["keys"]["history"]["value"]
    return [RoundRecord.model_validate_json(history[n]) for n in sorted(history, key=int)]


@pytest.fixture(params=[SCHEMA_1, SCHEMA_2], ids=["1", "2"])
def dump(request: pytest.FixtureRequest) -> Path:
    """The dump of each older schema."""
    path: Path = request.param
    return path


@pytest.fixture
async def restored(dump: Path, redis_url: str, tmp_path: Path) -> AsyncIterator[Restored]:
    """The federation from the dump, in a separate namespace."""
    namespace = f"test-{secrets.token_hex(6)}"
    values = restore(dump, redis_url, namespace, tmp_path / "blobs")
    stores = Stores.connect(redis_url, None, namespace)
    one = Restored(stores, RunBlobs(str(tmp_path / "blobs"), tmp_path), values)
    one.fence = await stores.lease.acquire("worker", 60, 0.0) or 0
    yield one
    await stores.aclose()


async def test_records_and_state_are_migrated(restored: Restored) -> None:
    await restored.migrate()
    assert await restored.records() == expected()
    assert any(record.mixing for record in expected())
    run = await restored.run.state.read()
    assert run is not None
    assert (run.schema, run.round, run.phase, run.slots_assigned) == ("3", 2, "collecting", True)
    old = json.loads(restored.values["federation"]["snapshot"])
    assert run.snapshot == Snapshot.model_validate({**old, "schema_version": "3"})
    assert run.snapshot.blobs() <= set(restored.blobs.of_run(RUN).digests())
    assert [path.name for path in restored.blobs.folder.iterdir()] == [RUN]


async def test_run_is_registered_with_all_clients_as_members(restored: Restored) -> None:
    await restored.migrate()
    runs = restored.stores.runs
    (info,) = await runs.entries()
    assert (info.run, info.state, info.submission, info.rounds) == (RUN, "running", "founding", 4)
    assert (await runs.current(), await runs.queue(), await runs.submission_count()) == (RUN, [], 1)
    assert await restored.run.members.slots() == {"ada": 0, "bob": 1, "cleo": 2}
    assert sorted(await restored.stores.clients.records()) == ["ada", "bob", "cleo"]
    tickets = await restored.run.tickets.outstanding()
    assert {client: (one.run, one.round) for client, one in tickets.items()} == {
        "ada": (RUN, 2),
        "bob": (RUN, 2),
    }
    assert [r.client for r in await restored.run.uploads.receipts(2)] == ["cleo"]
    events = await restored.run.events.read("0-0", 0.001)
    assert [event.position for event in events] == [p for p, _ in restored.values["events"]]
    (event,) = await restored.stores.events.read("0-0", 0.001)
    assert (event.type, event.run) == ("started", RUN), "so that waiting requests wake"


async def test_no_keys_of_the_old_schema_are_left(restored: Restored) -> None:
    await restored.migrate()
    prefix = restored.stores.keys.prefix
    names = {key.removeprefix(prefix) for key in await restored.dump()}
    former = {"federation", "history", "tickets", "evicted"}
    assert not former & names
    assert not [name for name in names if name.startswith("receipts")]


async def test_second_migration_changes_nothing(restored: Restored) -> None:
    await restored.migrate()
    before = await restored.dump()
    await restored.migrate()
    assert await restored.dump() == before


async def test_migration_that_lost_the_lease_can_be_repeated(restored: Restored) -> None:
    """A worker that has lost the lease may have moved blobs, but changes nothing in Redis."""
    old, restored.fence = restored.fence, restored.fence + 1
    before = await restored.dump()
    with pytest.raises(LeaseLost):
        await restored.migrate()
    assert await restored.dump() == before
    restored.fence = old
    await restored.migrate()
    assert await restored.records() == expected()


@pytest.mark.parametrize("dump", [SCHEMA_2], ids=["2"])
async def test_operators_and_the_audit_log_are_kept(restored: Restored) -> None:
    await restored.migrate()
    entries = await restored.stores.audit.entries(0, 10)
    assert check_chain(entries) == await restored.stores.audit.end()
    assert list(await restored.stores.operators.records()) == ["ada"]


@pytest.mark.parametrize("dump", [SCHEMA_2], ids=["2"])
async def test_ended_run_stays_ended(restored: Restored) -> None:
    client, prefix = restored.stores.redis.client, restored.stores.keys.prefix
    ended = {"phase": "done", "status": "finished"}
    await client.hset(f"{prefix}federation", mapping=ended)
    await restored.migrate()
    (info,) = await restored.stores.runs.entries()
    assert (info.state, info.clients, await restored.stores.runs.current()) == ("finished", 3, None)
    assert await restored.records() == expected()


@pytest.mark.parametrize("dump", [SCHEMA_2], ids=["2"])
async def test_clients_that_joined_before_the_start_are_migrated_as_accepted(
    restored: Restored,
) -> None:
    client, prefix = restored.stores.redis.client, restored.stores.keys.prefix
    await client.hset(f"{prefix}federation", mapping={"phase": "joining", "round": "0"})
    await restored.migrate()
    assert await restored.run.members.slots() == {}
    assert await restored.run.members.acceptances() == {"ada": 0, "bob": 1, "cleo": 2}


@pytest.mark.parametrize("dump", [SCHEMA_1], ids=["1"])
async def test_long_history_is_migrated_to_segments(restored: Restored) -> None:
    client, prefix = restored.stores.redis.client, restored.stores.keys.prefix
    first = json.loads(restored.values["history"]["0"])
    many = {str(number): json.dumps({**first, "round": number}) for number in range(130)}
    await client.hset(f"{prefix}history", mapping=many)
    await restored.migrate()
    assert sorted(map(int, await client.hkeys(restored.run.keys.segments))) == [63, 127]
    assert sorted(map(int, await client.hkeys(restored.run.keys.history))) == [128, 129]
    assert await restored.records() == expected(many)


@pytest.mark.parametrize("dump", [SCHEMA_2], ids=["2"])
async def test_unknown_schema_is_rejected_with_instructions(restored: Restored) -> None:
    client, prefix = restored.stores.redis.client, restored.stores.keys.prefix
    await client.hset(f"{prefix}federation", "schema", "0")
    with pytest.raises(ConfigurationError, match="use the version of Rampart that wrote"):
        await restored.migrate()
    await client.set(f"{prefix}schema", "4")
    with pytest.raises(ConfigurationError, match="Redis holds schema 4"):
        await restored.migrate()
