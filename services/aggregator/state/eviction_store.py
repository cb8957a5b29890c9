"""The barred clients: evicted clients, clients in quarantine, and proposed evictions."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rampart_fl.services.aggregator.state.audit_log import AUDITED, Act, Attribution, AuditLog
from rampart_fl.services.aggregator.state.event_log import EVENTS_KEPT
from rampart_fl.services.aggregator.state.keys import FederationKeys, RunKeys
from rampart_fl.services.aggregator.state.redis_access import RedisAccess, hash_of
from rampart_fl.services.aggregator.state.redis_records import BarredClients, parse_bar
from rampart_fl.services.aggregator.state.stored_values import read_model
from rampart_fl.shared.protocol.audit import ActName
from rampart_fl.shared.protocol.clients import Bar, ConfirmedFinding, Quarantine
from rampart_fl.shared.protocol.runs import OVER

RUN_STATE = """
local function run_state(runs, run)
  local entry = redis.call('HGET', runs, run)
  return entry and cjson.decode(entry).state
end
local function among(states, state)
  for _, one in ipairs(cjson.decode(states)) do
    if one == state then return true end
  end
  return false
end
"""
"""Defines two functions. `run_state` returns the state of a run in the registry, or false if the
run was deleted. `among` returns whether `states`, a list in JSON, contains `state`. No script may
write keys of a deleted run. A worker removes a deleted run's keys only once, so keys that are
written later would stay forever."""

EVICT = (
    AUDITED
    + RUN_STATE
    + """
-- KEYS clients evicted tickets events pulls quarantined runs; ARGV client why run over_json
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return {'unknown', ''} end
local state = run_state(KEYS[7], ARGV[3])
if not state then return {'deleted', ''} end
if among(ARGV[4], state) then return {'over', state} end
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1 then return {'already', ''} end
if not recorded() then return {'moved'} end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
redis.call('HDEL', KEYS[3], ARGV[1])
redis.call('HDEL', KEYS[5], ARGV[1])
redis.call('HDEL', KEYS[6], ARGV[1])
redis.call('XADD', KEYS[4], '*', 'type', 'evicted', 'client', ARGV[1],
  'reason', cjson.decode(ARGV[2]).reason)
return {'evicted', ''}
"""
)

REINSTATE = (
    AUDITED
    + RUN_STATE
    + """
-- KEYS clients evicted events quarantined runs state answers members reinstated
-- ARGV client reason kept run over_json
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return {'unknown', ''} end
local state = run_state(KEYS[5], ARGV[4])
if not state then return {'deleted', ''} end
local evicted = redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1
local over = among(ARGV[5], state)
if not evicted and redis.call('HEXISTS', KEYS[4], ARGV[1]) == 0 then return {'already', ''} end
-- An eviction outlives the run, because it withholds the final models; a quarantine does not.
if over and not evicted then return {'over', state} end
if not recorded() then return {'moved'} end
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[4], ARGV[1])
-- A client that was evicted before slots were assigned is offered the run again.
if redis.call('HEXISTS', KEYS[6], 'seated') == 1 and redis.call('HEXISTS', KEYS[8], ARGV[1]) == 0
  then redis.call('HDEL', KEYS[7], ARGV[1]) end
redis.call('XADD', KEYS[3], '*', 'type', 'reinstated', 'client', ARGV[1], 'reason', ARGV[2])
if over then redis.call('EXPIRE', KEYS[3], ARGV[3]) else redis.call('SADD', KEYS[9], ARGV[1]) end
return {'reinstated', ''}
"""
)

CONFIRM = (
    AUDITED
    + RUN_STATE
    + """
-- KEYS quarantined evicted events runs barred federation_events tickets pulls
-- ARGV client proposal why reason bar ('1' to bar the client from the federation) run over_json
-- The caller passes the proposal that it read, so that a newer proposal is never confirmed.
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return {'gone', ''} end
local state = run_state(KEYS[4], ARGV[6])
if not state then return {'deleted', ''} end
if among(ARGV[7], state) then return {'over', state} end
if not recorded() then return {'moved'} end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[7], ARGV[1])
redis.call('HDEL', KEYS[8], ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
redis.call('XADD', KEYS[3], '*', 'type', 'confirmed', 'client', ARGV[1], 'reason', ARGV[4])
if ARGV[5] == '1' and redis.call('HSETNX', KEYS[5], ARGV[1], ARGV[3]) == 1 then
  redis.call('XADD', KEYS[6], '*', 'type', 'barred', 'client', ARGV[1])
end
return {'confirmed', ''}
"""
)

DISMISS = (
    AUDITED
    + RUN_STATE
    + """
-- KEYS quarantined events runs; ARGV client proposal reason run over_json
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return {'gone', ''} end
local state = run_state(KEYS[3], ARGV[4])
if not state then return {'deleted', ''} end
if among(ARGV[5], state) then return {'over', state} end
if not recorded() then return {'moved'} end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('XADD', KEYS[2], '*', 'type', 'dismissed', 'client', ARGV[1], 'reason', ARGV[3])
return {'dismissed', ''}
"""
)


class Outcome(NamedTuple):
    """The result of an operator's decision about a client.

    For every decision, the answer can be "over" or "deleted". "over" means that the run has ended,
    so the decision would have no effect. "deleted" means that the run was deleted.
    """

    answer: str
    state: str = ""
    """The state of the run if the answer is "over"; otherwise empty."""


@dataclass(frozen=True)
class EvictionStore:
    """Evicts and reinstates clients for operators, and reads which clients are barred.

    Args:
        redis: the connection to Redis.
        run: the run's id.
        keys: the keys of the run.
        federation: keys of the federation, such as the key of the registered clients.
        audit: the log of operators' actions.
    """

    redis: RedisAccess
    run: str
    keys: RunKeys
    federation: FederationKeys
    audit: AuditLog

    async def evict(self, client: str, by: Attribution) -> Outcome:
        """Evicts a client, unless the run has ended.

        Returns:
            "evicted", "already" or "unknown" (there is no such client); see also `Outcome`.
        """
        keys = self.keys
        names = (
            *(self.federation.clients, keys.evicted, keys.tickets),
            *(keys.events, keys.pulls, keys.quarantined, self.federation.runs),
        )
        return await self._decide("evict", by, EVICT, names, client, by.bar.model_dump_json())

    async def reinstate(self, client: str, by: Attribution) -> Outcome:
        """Undoes an eviction or a quarantine.

        If the run has ended, only an eviction can be undone.

        Returns:
            "reinstated", "already" or "unknown" (there is no such client); see also `Outcome`.
        """
        keys = self.keys
        names = (
            *(self.federation.clients, keys.evicted, keys.events, keys.quarantined),
            *(self.federation.runs, keys.state, keys.answers, keys.members, keys.reinstated),
        )
        kept = str(EVENTS_KEPT)
        return await self._decide("reinstate", by, REINSTATE, names, client, by.reason, kept)

    async def confirm(self, client: str, by: Attribution, everywhere: bool = False) -> Outcome:
        """Confirms a proposed eviction, unless the run has ended.

        If `everywhere` is true, the client is also barred from the whole federation.

        Returns:
            "confirmed", or "gone" if there is no proposal; see also `Outcome`.
        """
        held = await self._proposal(client)
        if held is None:
            return Outcome("gone")
        raw, proposal = held
        finding = proposal.model_dump(exclude={"kind", "until"})
        confirmed = ConfirmedFinding(**finding, confirmed=by.reason)
        keys, federation = self.keys, self.federation
        names = (
            *(keys.quarantined, keys.evicted, keys.events),
            *(federation.runs, federation.barred, federation.events),
            *(keys.tickets, keys.pulls),
        )
        bar = "1" if everywhere else ""
        arguments = (client, raw, confirmed.model_dump_json(), by.reason, bar)
        return await self._decide("confirm", by, CONFIRM, names, *arguments)

    async def dismiss(self, client: str, by: Attribution) -> Outcome:
        """Dismisses a proposal, unless the run has ended.

        Returns:
            "dismissed", or "gone" if there is no proposal; see also `Outcome`.
        """
        held = await self._proposal(client)
        if held is None:
            return Outcome("gone")
        names = (self.keys.quarantined, self.keys.events, self.federation.runs)
        return await self._decide("dismiss", by, DISMISS, names, client, held[0], by.reason)

    async def _decide(
        self, verb: ActName, by: Attribution, script: str, keys: Sequence[str], *args: str
    ) -> Outcome:
        """Runs the script of a decision about a client; the client's id is the first of `args`."""
        act = Act(verb, by, args[0], {"run": self.run})
        answer, state = await self.audit.perform(
            act, script, keys, *args, self.run, json.dumps(sorted(OVER))
        )
        return Outcome(answer, state)

    async def _proposal(self, client: str) -> tuple[str, Quarantine] | None:
        """The proposal to evict a client, as JSON and parsed; None if there is no proposal."""
        raw = await self.redis.ask("hget", self.keys.quarantined, client)
        if raw is None:
            return None
        held = read_model(Quarantine, raw)
        return (raw, held) if held.kind == "proposal" else None

    async def evicted(self) -> dict[str, Bar]:
        """Every eviction, keyed and sorted by client id."""
        return _bars(await self.redis.ask("hgetall", self.keys.evicted))

    async def barred(self) -> BarredClients:
        """The barred clients and the members, read in one atomic step."""
        keys = self.keys
        evicted, held, banned, members, reinstated, fields = await self.redis.read(
            ("HGETALL", keys.evicted),
            ("HGETALL", keys.quarantined),
            ("HKEYS", self.federation.barred),
            ("HKEYS", keys.members),
            ("SMEMBERS", keys.reinstated),
            ("HMGET", keys.state, "founders", "mode", "abstained"),
        )
        founders, mode, abstained = fields
        evicted, quarantined = hash_of(evicted), hash_of(held)
        return BarredClients(
            _bars(evicted),
            {c: read_model(Quarantine, quarantined[c]) for c in sorted(quarantined)},
            frozenset(banned),
            frozenset(members),
            None if founders is None else int(founders),
            mode,
            frozenset(reinstated),
            frozenset(json.loads(abstained or "[]")),
        )


def _bars(raw: Mapping[str, str]) -> dict[str, Bar]:
    """Parses a Redis hash of the reasons why clients are barred; sorts the reasons by client id."""
    return {client: parse_bar(raw[client]) for client in sorted(raw)}
