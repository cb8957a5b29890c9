"""Converts the state that an earlier version stored in Redis to the present schema.

Schema 1 kept whole records in the hash `history`. Schema 2 keeps records in blobs. Redis then has
only a short entry for each of the newest rounds, and digests of blobs that hold the older entries
(see record_store.py).
"""

import json
import logging

from rampart_fl.services.aggregator.state.keys import MIGRATED, SCHEMA, FederationKeys
from rampart_fl.services.aggregator.state.record_store import RecordStore
from rampart_fl.services.aggregator.state.redis_access import FENCED

log = logging.getLogger(__name__)

MIGRATE = (
    FENCED
    + """
-- KEYS federation history segments fence; ARGV fence old new snapshot entries segments
if fenced(KEYS[4], ARGV[1]) then return {'fenced'} end
if redis.call('HGET', KEYS[1], 'schema') ~= ARGV[2] then return {'other'} end
redis.call('UNLINK', KEYS[2])
for round, entry in pairs(cjson.decode(ARGV[5])) do redis.call('HSET', KEYS[2], round, entry) end
for last, digest in pairs(cjson.decode(ARGV[6])) do redis.call('HSET', KEYS[3], last, digest) end
redis.call('HSET', KEYS[1], 'schema', ARGV[3], 'snapshot', ARGV[4])
return {'migrated'}
"""
)


async def migrate(records: RecordStore, federation: FederationKeys, fence: int) -> None:
    """Takes over a run of schema 1: copies its records to blobs, then changes Redis in one step.

    If a worker dies before the change of Redis, it leaves only unreferenced blobs, and the next
    worker starts the migration again. If there is no run, or if the run has another schema, this
    function does nothing.

    Args:
        records: the records of the run.
        federation: keys of the federation, for the worker's fencing token.
        fence: the worker's fencing token.
    """
    redis, keys = records.redis, records.keys
    old, snapshot = await redis.ask("hmget", keys.federation, ["schema", "snapshot"])
    if old != MIGRATED:
        return
    entries, segments = dict[int, str](), dict[str, str]()
    numbers = sorted(map(int, await redis.ask("hkeys", keys.history)))
    log.info("taking over schema %s", old, extra={"rounds": len(numbers)})
    for number in numbers:
        text = await redis.ask("hget", keys.history, str(number))
        entries[number] = await records.file_json(text)
        if records.full(entries):
            segments[str(number)] = await records.seal(entries)
            entries.clear()
    await redis.run(
        MIGRATE,
        (keys.federation, keys.history, keys.segments, federation.fence),
        fence,
        old,
        SCHEMA,
        json.dumps({**json.loads(snapshot), "schema_version": SCHEMA}),
        json.dumps({str(number): entry for number, entry in entries.items()}),
        json.dumps(segments),
    )
    log.info("took over schema %s", old)
