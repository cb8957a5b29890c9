"""Converts state in Redis and in blobs from an older schema to the current one.

Schema 1 kept whole records in the hash `history`. Schema 2 keeps records in blobs. Redis has only a
short entry for each of the newest rounds, and the digests of blobs with the older entries (see
record_store.py). Schema 3 divides the work of a federation into runs. A federation of schema 2
becomes a single run. The migration moves the federation's keys and blobs to this run, and registers
the run.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Collection

from rampart_fl.services.aggregator.state.keys import SCHEMA, RunKeys
from rampart_fl.services.aggregator.state.operator_store import OWNER
from rampart_fl.services.aggregator.state.record_store import RecordStore
from rampart_fl.services.aggregator.state.redis_access import FENCED
from rampart_fl.services.aggregator.state.run_blobs import RunBlobs
from rampart_fl.services.aggregator.state.run_registry import FOUNDING, LONGEST_NAME
from rampart_fl.services.aggregator.state.stores import Stores
from rampart_fl.shared.experiment.slots import client_names
from rampart_fl.shared.protocol.runs import RunInfo

log = logging.getLogger(__name__)
MOVED = ("history", "segments", "tickets", "pulls", "evicted", "quarantined", "events")
"""Names of the keys of schema 2 that get the prefix of the run."""

TO_BLOBS = (
    FENCED
    + """
-- KEYS federation history segments fence; ARGV fence snapshot entries segments
if fenced(KEYS[4], ARGV[1]) then return {'fenced'} end
if redis.call('HGET', KEYS[1], 'schema') ~= '1' then return {'other'} end
redis.call('UNLINK', KEYS[2])
for round, entry in pairs(cjson.decode(ARGV[3])) do redis.call('HSET', KEYS[2], round, entry) end
for last, digest in pairs(cjson.decode(ARGV[4])) do redis.call('HSET', KEYS[3], last, digest) end
redis.call('HSET', KEYS[1], 'schema', '2', 'snapshot', ARGV[2])
return {'migrated'}
"""
)

TO_RUNS = (
    FENCED
    + """
-- KEYS fence schema state answers members tickets runs run_counter submissions current events
--   then pairs (former key, present key); the first pair is for the state
-- ARGV fence schema run info submission fields answers members tickets is_current
if fenced(KEYS[1], ARGV[1]) then return {'fenced'} end
if redis.call('HGET', KEYS[12], 'schema') ~= '2' then return {'other'} end
for i = 12, #KEYS, 2 do
  if redis.call('EXISTS', KEYS[i]) == 1 then redis.call('RENAME', KEYS[i], KEYS[i + 1]) end
end
local function fill(key, text)
  for name, value in pairs(cjson.decode(text)) do redis.call('HSET', key, name, value) end
end
fill(KEYS[3], ARGV[6])
fill(KEYS[4], ARGV[7])
fill(KEYS[5], ARGV[8])
fill(KEYS[6], ARGV[9])
redis.call('HSET', KEYS[7], ARGV[3], ARGV[4])
redis.call('SET', KEYS[8], 1)
redis.call('HSET', KEYS[9], ARGV[5], ARGV[3])
if ARGV[10] == '1' then
  redis.call('SET', KEYS[10], ARGV[3])
  redis.call('XADD', KEYS[11], '*', 'type', 'started', 'run', ARGV[3])
end
redis.call('SET', KEYS[2], ARGV[2])
return {'migrated'}
"""
)


async def migrate(stores: Stores, blobs: RunBlobs, fence: int) -> None:
    """Converts the stored state if it has an older schema; otherwise does nothing.

    Each step of the conversion writes blobs first, and then changes Redis with one atomic script.
    If a worker dies before the script has run, the next worker repeats the step.

    Args:
        stores, blobs: the federation's state.
        fence: the worker's fencing token.
    Raises:
        ConfigurationError: this version can neither read nor convert the state.
    """
    while (former := await stores.runs.schema()) not in (None, SCHEMA):
        assert former is not None
        await STEPS[former](stores, blobs, fence)
        log.info("converted schema %s", former)


async def _to_blobs(stores: Stores, blobs: RunBlobs, fence: int) -> None:
    """Converts schema 1 to schema 2: copies the records to blobs."""
    redis, prefix = stores.redis, stores.keys.prefix
    keys, state = RunKeys(prefix), f"{prefix}federation"
    records = RecordStore(redis, keys, blobs.former())
    snapshot = json.loads(await redis.ask("hget", state, "snapshot"))
    entries, segments = dict[int, str](), dict[str, str]()
    for number in sorted(map(int, await redis.ask("hkeys", keys.history))):
        text = await redis.ask("hget", keys.history, str(number))
        entry = await records.file_json(text)
        if entries and records.full({**entries, number: entry}):
            segments[str(max(entries))] = await records.seal(entries)
            entries.clear()
        entries[number] = entry
    await redis.run(
        TO_BLOBS,
        (state, keys.history, keys.segments, stores.keys.fence),
        fence,
        json.dumps({**snapshot, "schema_version": "2"}),
        json.dumps({str(number): entry for number, entry in entries.items()}),
        json.dumps(segments),
    )


async def _to_runs(stores: Stores, blobs: RunBlobs, fence: int) -> None:
    """Converts schema 2 to schema 3: moves keys and blobs into one run, which all clients join."""
    redis, keys = stores.redis, stores.keys
    former = await redis.ask("hgetall", f"{keys.prefix}federation")
    experiment, done = json.loads(former["experiment"]), former["phase"] == "done"
    run = f"{experiment['name'][:LONGEST_NAME]}-1"
    own, began = keys.of_run(run), float(former["alive_at"])
    clients = await stores.clients.records()
    slots = _slots(clients, experiment["data"]["clients"])
    info = RunInfo(
        run=run,
        name=experiment["name"][:LONGEST_NAME],
        experiment=former["digest"],
        submission=FOUNDING,
        submitted_at=began,
        submitted_by=OWNER,
        state="finished" if done else "running",
        started_at=began,
        ended_at=began if done else None,
        round=int(former["round"]),
        rounds=experiment["rounds"],
        clients=len(clients) if done else 0,
        evicted=int(await redis.ask("hlen", f"{keys.prefix}evicted")) if done else 0,
    )
    assigned = {} if former["phase"] == "joining" else {"seated": "1"}
    snapshot = {**json.loads(former["snapshot"]), "schema_version": "3"}
    now, deadline = await redis.time(), former.get("deadline", "")
    # Extend the deadline by the time without a worker, as `LeaseStore.acquire` does.
    later = deadline and str(float(deadline) + max(0.0, now - began))
    fields = {"schema": "3", "snapshot": json.dumps(snapshot), **assigned}
    fields |= {"alive_at": str(now), "deadline": later}
    answer = {"accept": True, "reason": "", "at": began}
    tickets = await redis.ask("hgetall", f"{keys.prefix}tickets")
    pairs = [(f"{keys.prefix}federation", own.state)]
    pairs += [(keys.prefix + name, own.prefix + name) for name in MOVED]
    for pattern in ("receipts:*", "customized:*"):
        names = await redis.keys(keys.prefix + pattern)
        pairs += [(name, own.prefix + name.removeprefix(keys.prefix)) for name in names]
    await asyncio.to_thread(blobs.adopt_former, run)
    await redis.run(
        TO_RUNS,
        (
            *(keys.fence, keys.schema, own.state, own.answers, own.members, own.tickets),
            *(keys.runs, keys.run_counter, keys.submissions, keys.current, keys.events),
            *(name for pair in pairs for name in pair),
        ),
        fence,
        "3",
        run,
        info.model_dump_json(),
        FOUNDING,
        json.dumps(fields),
        json.dumps({c: json.dumps({**answer, "slot": slot}) for c, slot in slots.items()}),
        json.dumps({c: str(slot) for c, slot in slots.items()} if assigned else {}),
        json.dumps({c: json.dumps({**json.loads(t), "run": run}) for c, t in tickets.items()}),
        int(not done),
    )


def _slots(clients: Collection[str], most: int) -> dict[str, int]:
    """Assigns slots to the clients of a federation of schema 2, whose state has no slots.

    >>> _slots(["client-01", "ada"], 3)
    {'ada': 0, 'client-01': 1}
    """
    names = {name: slot for slot, name in enumerate(client_names(most))}
    slots = {client: names[client] for client in clients if client in names}
    free = (slot for slot in range(len(names) + len(clients)) if slot not in slots.values())
    others = dict(zip((c for c in sorted(clients) if c not in slots), free, strict=False))
    return dict(sorted({**slots, **others}.items()))


Conversion = Callable[[Stores, RunBlobs, int], Awaitable[None]]
STEPS: dict[str, Conversion] = {"1": _to_blobs, "2": _to_runs}
"""Maps each older schema to the function that converts its state to the next schema."""
