"""The barred clients: evictions, quarantines, and proposals that wait for an operator."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from rampart_fl.services.aggregator.state.audit_log import AUDITED, Act, Attribution, AuditLog
from rampart_fl.services.aggregator.state.event_log import EVENTS_KEPT
from rampart_fl.services.aggregator.state.keys import FederationKeys, RunKeys
from rampart_fl.services.aggregator.state.redis_access import RedisAccess, hash_of
from rampart_fl.services.aggregator.state.redis_records import BarredClients, parse_bar
from rampart_fl.services.aggregator.state.stored_values import read_model
from rampart_fl.shared.protocol.clients import Bar, ConfirmedFinding, Quarantine
from rampart_fl.shared.protocol.runs import OVER

LOGGED = f"""
local function log(state, events, ...)
  redis.call('XADD', events, '*', ...)
  if redis.call('HGET', state, 'phase') == 'done' then
    redis.call('EXPIRE', events, {EVENTS_KEPT})
  end
end
"""
"""Defines `log`, which appends to a run's event log. If the run has ended, the log expires."""

EVICT = (
    AUDITED
    + """
-- KEYS clients evicted tickets events pulls quarantined runs; ARGV client why run over_json
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return {'unknown', ''} end
local entry = redis.call('HGET', KEYS[7], ARGV[3])
local state = entry and cjson.decode(entry).state
for _, over in ipairs(cjson.decode(ARGV[4])) do
  if state == over then return {'over', state} end
end
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
    + LOGGED
    + """
-- KEYS clients evicted events quarantined state; ARGV client reason
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return {'unknown'} end
local barred = redis.call('HEXISTS', KEYS[2], ARGV[1]) + redis.call('HEXISTS', KEYS[4], ARGV[1])
if barred == 0 then return {'already'} end
if not recorded() then return {'moved'} end
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[4], ARGV[1])
log(KEYS[5], KEYS[3], 'type', 'reinstated', 'client', ARGV[1], 'reason', ARGV[2])
return {'reinstated'}
"""
)

CONFIRM = (
    AUDITED
    + LOGGED
    + """
-- KEYS quarantined evicted events state; ARGV client proposal why reason
-- The caller passes the proposal that it read, so that a newer proposal is never confirmed.
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return {'gone'} end
if not recorded() then return {'moved'} end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
log(KEYS[4], KEYS[3], 'type', 'confirmed', 'client', ARGV[1], 'reason', ARGV[4])
return {'confirmed'}
"""
)

DISMISS = (
    AUDITED
    + LOGGED
    + """
-- KEYS quarantined events state; ARGV client proposal reason
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return {'gone'} end
if not recorded() then return {'moved'} end
redis.call('HDEL', KEYS[1], ARGV[1])
log(KEYS[3], KEYS[2], 'type', 'dismissed', 'client', ARGV[1], 'reason', ARGV[3])
return {'dismissed'}
"""
)


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

    async def evict(self, client: str, by: Attribution) -> tuple[str, str]:
        """Evicts a client, unless the run has ended.

        Returns:
            "evicted", "already", "unknown" or "over"; and the state of a run that is over, or "".
        """
        keys = self.keys
        names = (
            *(self.federation.clients, keys.evicted, keys.tickets),
            *(keys.events, keys.pulls, keys.quarantined, self.federation.runs),
        )
        why, over = by.bar.model_dump_json(), json.dumps(sorted(OVER))
        act = Act("evict", by, client, {"run": self.run})
        answer, state = await self.audit.perform(act, EVICT, names, client, why, self.run, over)
        return answer, state

    async def reinstate(self, client: str, by: Attribution) -> str:
        """Undoes an eviction or a quarantine; returns "reinstated", "already" or "unknown"."""
        keys = self.keys
        names = (self.federation.clients, keys.evicted, keys.events, keys.quarantined, keys.state)
        act = Act("reinstate", by, client, {"run": self.run})
        return (await self.audit.perform(act, REINSTATE, names, client, by.reason))[0]

    async def confirm(self, client: str, by: Attribution) -> str:
        """Confirms a proposed eviction; returns "confirmed", or "gone" if there is no proposal."""
        held = await self._proposal(client)
        if held is None:
            return "gone"
        raw, proposal = held
        finding = proposal.model_dump(exclude={"kind", "until"})
        confirmed = ConfirmedFinding(**finding, confirmed=by.reason)
        names = (self.keys.quarantined, self.keys.evicted, self.keys.events, self.keys.state)
        act = Act("confirm", by, client, {"run": self.run})
        arguments = (client, raw, confirmed.model_dump_json(), by.reason)
        return (await self.audit.perform(act, CONFIRM, names, *arguments))[0]

    async def dismiss(self, client: str, by: Attribution) -> str:
        """Dismisses a proposal; returns "dismissed", or "gone" if there is no proposal."""
        held = await self._proposal(client)
        if held is None:
            return "gone"
        names = (self.keys.quarantined, self.keys.events, self.keys.state)
        act = Act("dismiss", by, client, {"run": self.run})
        return (await self.audit.perform(act, DISMISS, names, client, held[0], by.reason))[0]

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
        """The evicted and the quarantined clients, both read in one atomic step."""
        keys = self.keys
        evicted, held, clients, (founders, mode) = await self.redis.read(
            ("HGETALL", keys.evicted),
            ("HGETALL", keys.quarantined),
            ("HLEN", keys.members),
            ("HMGET", keys.state, "founders", "mode"),
        )
        evicted, quarantined = hash_of(evicted), hash_of(held)
        return BarredClients(
            _bars(evicted),
            {c: read_model(Quarantine, quarantined[c]) for c in sorted(quarantined)},
            clients,
            None if founders is None else int(founders),
            mode,
        )


def _bars(raw: Mapping[str, str]) -> dict[str, Bar]:
    """Parses a Redis hash of the reasons why clients are barred; sorts the reasons by client id."""
    return {client: parse_bar(raw[client]) for client in sorted(raw)}
