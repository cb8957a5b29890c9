"""State that a newer release stored with further fields is read as if they were not there."""

import json
from typing import Any

import pytest

from rampart_fl.services.aggregator.state.audit_log import Attribution
from rampart_fl.services.aggregator.state.snapshot import Snapshot
from rampart_fl.services.aggregator.state.stored_values import read_model
from rampart_fl.shared.protocol.messages import RoundRecord
from rampart_fl.shared.protocol.stored_rounds import StoredRound
from tests.services.aggregator.conftest import held

pytestmark = pytest.mark.anyio
BY = Attribution("ada", "a test", 0.0)
SKIPPED = {"experiment", "spec"}
"""A release refuses experiments with unknown keys: it cannot know what they mean."""


def newer(value: Any) -> Any:
    """The value with a further field in each object that has named fields."""
    if isinstance(value, dict):
        fields = {name: newer(one) for name, one in value.items()}
        return fields | (
            {"of_a_newer_release": 1} if {"client", "reason", "run"} & set(value) else {}
        )
    return [newer(one) for one in value] if isinstance(value, list) else value


async def add_fields(live_run: Any) -> int:
    """Adds a field to every stored JSON object; returns the number of changed values."""
    redis, changed = live_run.stores.redis.client, 0
    for key, values in (await live_run.dump()).items():
        if key.endswith("audit") or not isinstance(values, dict):
            continue
        for name, text in values.items():
            if name in SKIPPED or not text.startswith("{"):
                continue
            more = newer(json.loads(text)) | {"of_a_newer_release": 1}
            await redis.hset(key, name, json.dumps(more))
            changed += 1
    return changed


async def read_everything(live_run: Any) -> list[Any]:
    run, stores = live_run.run, live_run.stores
    entry = await live_run.records.entry(0)
    return [
        await run.tickets.outstanding(),
        await run.tickets.standing("a", (1, "update")),
        await run.uploads.every_receipt(),
        await run.evictions.barred(),
        await run.members.answers(),
        (await run.state.read()).snapshot,
        await stores.runs.entries(),
        await stores.clients.records(),
        await stores.clients.of_token("token-a"),
        entry,
    ]


async def test_fields_of_a_newer_release_are_ignored(live_run: Any) -> None:
    run = live_run.run
    await live_run.join("a", "b", "c", "d")
    await live_run.open(0, ["a", "b"])
    await run.evictions.evict("d", BY)
    filed = await live_run.records.file(RoundRecord(round=0, status="published"))
    receipt = live_run.receipt("a", 0)
    snapshot = Snapshot(global_model="1" * 64, reference="1" * 64, pool=(receipt,))
    position = await run.events.last_position()
    away = {"b": held(3), "c": held(3, "proposal")}
    await run.rounds.publish(live_run.fence, filed, {}, snapshot, position, away)
    await live_run.open(1, ["a"])
    assert (await run.uploads.accept(live_run.receipt("a", 1)))[0] == "accepted"
    before = await read_everything(live_run)
    assert await add_fields(live_run) > 15
    assert await read_everything(live_run) == before


async def test_a_record_of_a_newer_release_is_read() -> None:
    text = StoredRound(round=3, status="published").model_dump_json()
    verdict = {"client": "a", "decision": "accepted", "detector": "d", "score": 0.5}
    verdict |= {"threshold": 1.0, "reason": ""}
    more = newer({**json.loads(text), "verdicts": [verdict], "run": "x"})
    record = read_model(StoredRound, json.dumps(more))
    assert (record.round, record.verdicts[0].client) == (3, "a")
