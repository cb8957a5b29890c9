"""The members of a run: the clients that accepted the run's offer, and each member's slot.

Clients answer a run's offer before the run starts. When the run starts, the worker assigns a slot
to each client that accepted the offer, and these clients become members. A client that accepts the
offer after the run has started gets a slot at once, if a slot is free.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rampart_fl.services.aggregator.state.keys import FederationKeys, RunKeys
from rampart_fl.services.aggregator.state.redis_access import FENCED, RedisAccess, converted_errors
from rampart_fl.services.aggregator.state.redis_records import by_client
from rampart_fl.services.aggregator.state.stored_values import read_record

ANSWER = """
-- KEYS state answers members evicted events barred; ARGV client answer_json slots
if redis.call('HEXISTS', KEYS[4], ARGV[1]) == 1 or redis.call('HEXISTS', KEYS[6], ARGV[1]) == 1 then
  return {'evicted'}
end
local f = redis.call('HMGET', KEYS[1], 'phase', 'seated')
if not f[1] then return {'unfounded'} end
local answer = cjson.decode(ARGV[2])
local held = redis.call('HGET', KEYS[3], ARGV[1])
if held then return {answer.accept and 'member' or 'frozen', held} end
if f[1] == 'evaluating' or f[1] == 'done' then return {'over'} end
local slot = ''
if answer.accept and f[2] then
  local taken, abandoned = {}, {}
  local members = redis.call('HGETALL', KEYS[3])
  for i = 1, #members, 2 do
    local number, gone = tonumber(members[i + 1]), redis.call('HEXISTS', KEYS[4], members[i]) == 1
    taken[number] = true
    if not gone then abandoned[number] = false
    elseif abandoned[number] == nil then abandoned[number] = true end
  end
  local requested = answer.slot ~= cjson.null and tonumber(answer.slot) or nil
  -- A client that comes back after an eviction, with a new identity, may ask for its old slot.
  if requested and requested < tonumber(ARGV[3])
      and (not taken[requested] or abandoned[requested]) then
    slot = requested
  else
    for number = 0, tonumber(ARGV[3]) - 1 do
      if slot == '' and not taken[number] then slot = number end
    end
  end
  if slot == '' then return {'full'} end
  redis.call('HSET', KEYS[3], ARGV[1], slot)
end
local former = redis.call('HGET', KEYS[2], ARGV[1])
if former and slot == '' then
  former = cjson.decode(former)
  if former.accept == answer.accept and former.reason == answer.reason
      and former.slot == answer.slot then
    return {'recorded', ''}
  end
end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
local event = answer.accept and (slot ~= '' and 'joined' or 'accepted') or 'declined'
redis.call('XADD', KEYS[5], '*', 'type', event, 'client', ARGV[1])
return {'recorded', tostring(slot)}
"""

ASSIGN_SLOTS = (
    FENCED
    + """
-- KEYS state answers members evicted barred fence events; ARGV fence slots_json number_of_slots
if fenced(KEYS[6], ARGV[1]) then return {'fenced'} end
if redis.call('HEXISTS', KEYS[1], 'seated') == 1 then return {'assigned'} end
local out = {}
for _, key in ipairs({KEYS[4], KEYS[5]}) do
  for _, client in ipairs(redis.call('HKEYS', key)) do out[client] = true end
end
local drawn, holders, others = cjson.decode(ARGV[2]), {}, {}
local answers = redis.call('HGETALL', KEYS[2])
for i = 1, #answers, 2 do
  local client = answers[i]
  if cjson.decode(answers[i + 1]).accept and not out[client] then
    if drawn[client] then holders[drawn[client]] = client else table.insert(others, client) end
  end
end
table.sort(others)
local slot = 0
for _, client in ipairs(others) do
  while holders[slot] do slot = slot + 1 end
  if slot >= tonumber(ARGV[3]) then break end
  holders[slot] = client
end
for number, client in pairs(holders) do redis.call('HSET', KEYS[3], client, number) end
redis.call('HSET', KEYS[1], 'seated', '1')
redis.call('XADD', KEYS[7], '*', 'type', 'slots_assigned')
return {'assigned'}
"""
)


class AnswerRecord(NamedTuple):
    """A client's answer to a run's offer; the fields are the keys of the stored JSON."""

    accept: bool
    at: float
    """Unix time of the answer."""
    reason: str = ""
    slot: int | None = None
    """The slot that the client requests; None if the client accepts any slot."""


@dataclass(frozen=True)
class MemberStore:
    """Records clients' answers to a run's offer, and the slots of the members.

    Args:
        redis: the connection to Redis.
        keys: the keys of the run.
        federation: keys of the federation, which hold the worker's fencing token and the barred
            clients.
    """

    redis: RedisAccess
    keys: RunKeys
    federation: FederationKeys

    async def answer(self, client: str, answer: AnswerRecord, slots: int) -> tuple[str, str]:
        """Records a client's answer; the call is idempotent.

        Args:
            client: the client's id.
            answer: the answer.
            slots: number of slots of the run.
        Returns:
            The first value is "recorded" or, if the client is a member already, "member". If the
            answer is refused, the first value is "evicted" (the client is evicted or barred),
            "unfounded" (the run has not been offered), "over" (the run accepts no more members),
            "frozen" (a member cannot decline) or "full" (no slot is free). The second value is the
            client's slot if the first value is "recorded", "member" or "frozen", and the client has
            a slot; otherwise, it is "".
        """
        keys = self.keys
        names = (keys.state, keys.answers, keys.members, keys.evicted, keys.events)
        arguments = (client, json.dumps(answer._asdict()), slots)
        reply = await self.redis.run(ANSWER, (*names, self.federation.barred), *arguments)
        return reply[0], reply[1] if len(reply) > 1 else ""

    async def answers(self) -> dict[str, AnswerRecord]:
        """Every client's answer, keyed and sorted by id."""
        return _parse_answers(await self.redis.ask("hgetall", self.keys.answers))

    async def answer_count(self) -> int:
        """The number of clients that have accepted or declined."""
        return int(await self.redis.ask("hlen", self.keys.answers))

    async def acceptances(self) -> dict[str, int | None]:
        """The clients that accepted the offer and are not barred, with their requested slots.

        The result is sorted by client id.
        """
        # This pipeline is not a transaction, because Redis refuses transactions when its memory
        # limit is reached. The barred clients are read last, so that clients that were barred
        # meanwhile are left out.
        async with converted_errors(), self.redis.client.pipeline(transaction=False) as pipe:
            pipe.hgetall(self.keys.answers)
            pipe.hkeys(self.keys.evicted)
            pipe.hkeys(self.federation.barred)
            answers, evicted, barred = await pipe.execute()
        out = {*evicted, *barred}
        parsed = _parse_answers(answers)
        return {c: a.slot for c, a in parsed.items() if a.accept and c not in out}

    async def assign_slots(self, fence: int, drawn: Mapping[str, int], slots: int) -> None:
        """Gives slots to the clients that accepted the offer; these clients become members.

        If slots were assigned earlier, the call does nothing.

        Clients may answer while the worker draws the slots. A client that declines meanwhile gets
        no slot. A client that accepts meanwhile gets the lowest slot that is still free. Therefore,
        no client can delay the start by changing its answer.

        Args:
            fence: the worker's fencing token.
            drawn: the slots that the worker has drawn, keyed by client.
            slots: number of slots of the run.
        """
        keys, federation = self.keys, self.federation
        names = (keys.state, keys.answers, keys.members, keys.evicted, federation.barred)
        await self.redis.run(
            ASSIGN_SLOTS,
            (*names, federation.fence, keys.events),
            *(fence, json.dumps(dict(drawn)), slots),
        )

    async def slots(self) -> dict[str, int]:
        """The members and their slots, sorted by id."""
        raw = await self.redis.ask("hgetall", self.keys.members)
        return {client: int(raw[client]) for client in sorted(raw)}


def _parse_answers(raw: Mapping[str, str]) -> dict[str, AnswerRecord]:
    return {client: read_record(AnswerRecord, fields) for client, fields in by_client(raw).items()}
