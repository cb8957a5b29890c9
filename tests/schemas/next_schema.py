"""Schema 4, which only the next release of tests/integration/releases.py has.

In schema 4, the members of a run have another key. A release of schema 3 would find a run without
members, and so must not touch this state.
"""

import json

from rampart_fl.services.aggregator.state.redis_access import FENCED
from rampart_fl.services.aggregator.state.run_blobs import RunBlobs
from rampart_fl.services.aggregator.state.stores import Stores

TO_SEATS = (
    FENCED
    + """
-- KEYS fence schema, then of each run: state, former and present key of its members
-- ARGV fence, then of each run: its snapshot
if fenced(KEYS[1], ARGV[1]) then return {'fenced'} end
for i = 2, #ARGV do
  local key = 3 * i - 3
  redis.call('HSET', KEYS[key], 'schema', '4', 'snapshot', ARGV[i])
  if redis.call('EXISTS', KEYS[key + 1]) == 1 then
    redis.call('RENAME', KEYS[key + 1], KEYS[key + 2])
  end
end
redis.call('SET', KEYS[2], '4')
return {'migrated'}
"""
)


async def to_seats(stores: Stores, blobs: RunBlobs, fence: int) -> None:
    """From schema 3 to 4: moves the members of each run that has started to the key `seats`."""
    del blobs
    keys, snapshots = [stores.keys.fence, stores.keys.schema], []
    for info in await stores.runs.entries():
        own = stores.keys.of_run(info.run)
        text = await stores.redis.ask("hget", own.state, "snapshot")
        if text is not None:
            keys += [own.state, f"{own.prefix}members", f"{own.prefix}seats"]
            snapshots.append(json.dumps({**json.loads(text), "schema_version": "4"}))
    await stores.redis.run(TO_SEATS, keys, fence, *snapshots)
