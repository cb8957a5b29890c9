"""The rounds, which the worker opens, closes and publishes."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from rampart_fl.services.aggregator.state.keys import FederationKeys, RunKeys
from rampart_fl.services.aggregator.state.record_store import FiledRecord
from rampart_fl.services.aggregator.state.redis_access import FENCED, RedisAccess
from rampart_fl.services.aggregator.state.snapshot import Snapshot
from rampart_fl.services.aggregator.state.upload_store import KEPT
from rampart_fl.shared.protocol.clients import Finding, Quarantine
from rampart_fl.shared.protocol.messages import Phase, Ticket

ANSWERED = 64
"""Maximum number of closed rounds whose receipts are kept. Under the policy `buffered`, only the
time limit `KEPT` applies, because updates for old rounds still arrive."""

OPEN = (
    FENCED
    + """
-- KEYS state tickets fence events evicted pulls quarantined members receipts
-- ARGV fence round phase now deadline clear tickets selected examined
if fenced(KEYS[3], ARGV[1]) then return {'fenced'} end
local f = redis.call('HMGET', KEYS[1], 'round', 'phase')
if f[1] == ARGV[2] and f[2] == ARGV[3] then return {'opened'} end
local training = ARGV[3] == 'collecting'
if training then
  redis.call('HSETNX', KEYS[1], 'founders', redis.call('HLEN', KEYS[8]))
  local held = redis.call('HGETALL', KEYS[7])
  for i = 1, #held, 2 do
    local why = cjson.decode(held[i + 1])
    if why['until'] <= tonumber(ARGV[2]) then
      redis.call('HDEL', KEYS[7], held[i])
      if why.kind == 'proposal' then
        redis.call('XADD', KEYS[4], '*', 'type', 'dismissed', 'client', held[i],
          'reason', 'nobody decided in time')
      else
        redis.call('XADD', KEYS[4], '*', 'type', 'released', 'client', held[i])
      end
    end
  end
end
if ARGV[6] == '1' then redis.call('DEL', KEYS[2]) end
-- The evaluation reuses the number of the last round, whose receipts have a time to live.
if not training then redis.call('PERSIST', KEYS[9]) end
for id, ticket in pairs(cjson.decode(ARGV[7])) do
  redis.call('HDEL', KEYS[6], id)
  local away = training and redis.call('HEXISTS', KEYS[7], id) == 1
  if not away and redis.call('HEXISTS', KEYS[5], id) == 0 then
    redis.call('HSET', KEYS[2], id, ticket)
  end
end
redis.call('HSET', KEYS[1], 'round', ARGV[2], 'phase', ARGV[3], 'opened_at', ARGV[4],
  'deadline', ARGV[5], 'alive_at', ARGV[4], 'selected', ARGV[8], 'examined', ARGV[9])
redis.call('XADD', KEYS[4], '*', 'type', 'opened', 'round', ARGV[2], 'phase', ARGV[3])
return {'opened'}
"""
)

CLOSE = (
    FENCED
    + """
-- KEYS state fence events tickets; ARGV fence round position
if fenced(KEYS[2], ARGV[1]) then return {'fenced'} end
local f = redis.call('HMGET', KEYS[1], 'round', 'phase', 'policy')
if f[1] ~= ARGV[2] or f[2] ~= 'collecting' then return {'closed'} end
redis.call('HSET', KEYS[1], 'phase', 'aggregating', 'closing', ARGV[3])
-- Without this, a client that is late would get its ticket again, and upload again.
if f[3] ~= 'buffered' then redis.call('UNLINK', KEYS[4]) end
redis.call('XADD', KEYS[3], '*', 'type', 'aggregating', 'round', ARGV[2])
return {'closed'}
"""
)

PUBLISH = (
    FENCED
    + """
-- KEYS state history evicted fence events receipts tickets pulls quarantined segments
--   old_receipts barred federation_events late clients reinstated
-- ARGV fence round status entry evictions snapshot position keep_seconds quarantines abstained
--   segment forgotten bar ('1' to bar evicted clients from the federation) moved reinstated
if fenced(KEYS[4], ARGV[1]) then return {'fenced'} end
local f = redis.call('HMGET', KEYS[1], 'round', 'phase', 'policy')
if f[1] == ARGV[2] and f[2] == ARGV[3] then return {'published'} end
redis.call('HSET', KEYS[2], ARGV[2], ARGV[4])
if ARGV[11] ~= '' then
  local moved = cjson.decode(ARGV[14])
  for _, number in ipairs(moved) do
    redis.call('HDEL', KEYS[2], number)
    redis.call('HDEL', KEYS[14], number)
  end
  redis.call('HSET', KEYS[10], moved[#moved], ARGV[11])
  for _, last in ipairs(cjson.decode(ARGV[12])) do redis.call('HDEL', KEYS[10], last) end
end
redis.call('HSET', KEYS[1], 'phase', ARGV[3], 'deadline', '', 'snapshot', ARGV[6],
  'abstained', ARGV[10])
redis.call('EXPIRE', KEYS[6], ARGV[8])
if f[3] ~= 'buffered' then redis.call('UNLINK', KEYS[7], KEYS[11]) end
-- Rounds of many runs bar clients from the federation; together, they bar fewer than half.
local left = 0
if ARGV[13] == '1' then
  left = math.floor((redis.call('HLEN', KEYS[15]) - 1) / 2) - redis.call('HLEN', KEYS[12])
end
for id, why in pairs(cjson.decode(ARGV[5])) do
  redis.call('HDEL', KEYS[7], id)
  redis.call('HDEL', KEYS[8], id)
  if redis.call('HSETNX', KEYS[3], id, why) == 1 then
    redis.call('XADD', KEYS[5], '*', 'type', 'evicted', 'client', id, 'round', ARGV[2],
      'reason', cjson.decode(why).reason)
  end
  if left > 0 and redis.call('HSETNX', KEYS[12], id, why) == 1 then
    left = left - 1
    redis.call('XADD', KEYS[13], '*', 'type', 'barred', 'client', id)
  end
end
for id, raw in pairs(cjson.decode(ARGV[9])) do
  redis.call('HDEL', KEYS[7], id)
  redis.call('HDEL', KEYS[8], id)
  local why = cjson.decode(raw)
  if redis.call('HEXISTS', KEYS[3], id) == 0 and redis.call('HSETNX', KEYS[9], id, raw) == 1 then
    redis.call('XADD', KEYS[5], '*', 'type', why.kind == 'proposal' and 'proposed' or 'quarantined',
      'client', id, 'round', ARGV[2], 'until', why['until'], 'reason', why.reason)
  end
end
for _, id in ipairs(cjson.decode(ARGV[15])) do redis.call('SREM', KEYS[16], id) end
local abstained = cjson.decode(ARGV[10])
if #abstained > 0 then
  redis.call('XADD', KEYS[5], '*', 'type', 'abstained', 'round', ARGV[2],
    'clients', table.concat(abstained, ' '))
end
redis.call('XADD', KEYS[5], '*', 'type', ARGV[3], 'round', ARGV[2])
local last = redis.call('XREVRANGE', KEYS[5], '+', '-', 'COUNT', 1000)
local oldest = last[#last][1]
local function before(a, b)
  local am, as = string.match(a, '(%d+)-(%d+)')
  local bm, bs = string.match(b, '(%d+)-(%d+)')
  if tonumber(am) ~= tonumber(bm) then return tonumber(am) < tonumber(bm) end
  return tonumber(as) < tonumber(bs)
end
redis.call('XTRIM', KEYS[5], 'MINID', before(ARGV[7], oldest) and ARGV[7] or oldest)
return {'published'}
"""
)


@dataclass(frozen=True)
class RoundStore:
    """Opens, closes and publishes rounds.

    Args:
        redis: the connection to Redis.
        keys: the keys of the run.
        federation: keys of the federation, such as those of the barred clients and of the worker's
            fencing token.
    """

    redis: RedisAccess
    keys: RunKeys
    federation: FederationKeys

    async def open(
        self,
        fence: int,
        round_: int,
        phase: Phase,
        now: float,
        deadline: float | None,
        tickets: Mapping[str, Ticket],
        selected: Sequence[str],
        examined: Sequence[str] = (),
        clear: bool = True,
    ) -> None:
        """Opens a round or the evaluation, and stores the clients' tickets.

        Before a round opens, the call ends the quarantines that last until this round. The clients
        that were in quarantine can then get tickets for the round.
        """
        keys = self.keys
        await self.redis.run(
            OPEN,
            (
                *(keys.state, keys.tickets, self.federation.fence, keys.events),
                *(keys.evicted, keys.pulls, keys.quarantined, keys.members),
                keys.receipts(round_),
            ),
            fence,
            round_,
            phase,
            now,
            "" if deadline is None else deadline,
            int(clear),
            json.dumps({client: t.model_dump_json() for client, t in tickets.items()}),
            json.dumps(list(selected)),
            json.dumps({str(round_): list(examined)}),
        )

    async def close(self, fence: int, round_: int, position: str) -> None:
        """Ends the collection of updates; deletes the tickets, except under the buffered policy.

        Args:
            fence: the worker's fencing token.
            round_: the number of the round.
            position: the position of the round's last event.
        """
        keys = (self.keys.state, self.federation.fence, self.keys.events, self.keys.tickets)
        await self.redis.run(CLOSE, keys, fence, round_, position)

    async def publish(
        self,
        fence: int,
        filed: FiledRecord,
        evictions: Mapping[str, Finding],
        snapshot: Snapshot,
        position: str,
        quarantines: Mapping[str, Quarantine] = MappingProxyType({}),
        abstained: Sequence[str] = (),
        everywhere: bool = False,
        reinstated: Collection[str] = (),
    ) -> None:
        """Publishes a round's record, snapshot, evictions and quarantines in one atomic step.

        If `everywhere` is true, evicted clients are also barred from the whole federation, as long
        as fewer than half of the federation's clients are barred. `reinstated` has the reinstated
        clients about whom the round's detectors forgot what they knew.
        """
        keys = self.keys
        await self.redis.run(
            PUBLISH,
            (
                *(keys.state, keys.history, keys.evicted, self.federation.fence, keys.events),
                *(keys.receipts(filed.round), keys.tickets, keys.pulls, keys.quarantined),
                *(keys.segments, keys.receipts(filed.round - ANSWERED)),
                *(self.federation.barred, self.federation.events, keys.late),
                *(self.federation.clients, keys.reinstated),
            ),
            fence,
            filed.round,
            filed.status,
            filed.entry,
            json.dumps({client: why.model_dump_json() for client, why in evictions.items()}),
            json.dumps(snapshot.model_dump(mode="json")),
            position,
            KEPT,
            json.dumps({client: why.model_dump_json() for client, why in quarantines.items()}),
            json.dumps(list(abstained)),
            filed.segment or "",
            json.dumps(list(map(str, filed.forgotten))),
            int(everywhere),
            json.dumps(list(map(str, filed.moved))),
            json.dumps(sorted(reinstated)),
        )
