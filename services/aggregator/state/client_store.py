"""The clients: registrations, the clients' own tokens, and the times of their last requests."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from rampart_fl.services.aggregator.state.audit_log import (
    AUDITED,
    UNAUDITED,
    Act,
    Attribution,
    AuditLog,
)
from rampart_fl.services.aggregator.state.client_facts import ClientFacts, LastRequest, silence
from rampart_fl.services.aggregator.state.keys import FederationKeys
from rampart_fl.services.aggregator.state.redis_access import (
    RedisAccess,
    converted_errors,
    unix_time,
)
from rampart_fl.services.aggregator.state.redis_records import by_client, parse_bar
from rampart_fl.services.aggregator.state.stored_values import read_record
from rampart_fl.shared.protocol.messages import LABELS

JOIN = """
-- KEYS joins clients tokens events; ARGV join_hash now requested fresh token_hash expires
local raw = redis.call('HGET', KEYS[1], ARGV[1])
if not raw then return {'unknown'} end
local join = cjson.decode(raw)
if join.used then
  local known = redis.call('HGET', KEYS[2], join.used)
  -- A token that was replaced or revoked since must not repeat the request.
  if join.token_hash ~= ARGV[5] or not known or cjson.decode(known).token_hash ~= ARGV[5] then
    return {'used'}
  end
  return {'joined', join.used, known}
end
if join.revoked then return {'revoked'} end
if tonumber(join.expires_at) < tonumber(ARGV[2]) then return {'expired'} end
local id = join.client_id or (ARGV[3] ~= '' and ARGV[3]) or ARGV[4]
if redis.call('HEXISTS', KEYS[2], id) == 1 then return {'taken', id} end
if redis.call('HEXISTS', KEYS[3], ARGV[5]) == 1 then return {'token-taken'} end
local client = cjson.encode({registered_at = tonumber(ARGV[2]), token_hash = ARGV[5],
  expires_at = tonumber(ARGV[6]), sample_cap = join.sample_cap,
  labels = join.labels})
redis.call('HSET', KEYS[2], id, client)
redis.call('HSET', KEYS[3], ARGV[5], cjson.encode({client = id, expires_at = tonumber(ARGV[6])}))
join.used = id
join.token_hash = ARGV[5]
redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(join))
redis.call('XADD', KEYS[4], '*', 'type', 'joined', 'client', id)
return {'joined', id, client}
"""

CHANGE = """
-- KEYS clients tokens events; ARGV client token_hash expires presented
-- An empty token_hash revokes the token; presented is empty if an operator asks.
local raw = redis.call('HGET', KEYS[1], ARGV[1])
if not raw then return {'unknown'} end
local client = cjson.decode(raw)
-- The request may have begun before an operator revoked or replaced the token. A client may repeat
-- a change that succeeded, so the stored token may already be the new one.
if ARGV[4] ~= '' and client.token_hash ~= ARGV[4] and client.token_hash ~= ARGV[2] then
  return {'invalid'}
end
if ARGV[2] ~= client.token_hash and redis.call('HEXISTS', KEYS[2], ARGV[2]) == 1 then
  return {'taken'}
end
if ARGV[2] == '' and client.token_hash == '' then return {'done', raw} end
if not recorded() then return {'moved'} end
redis.call('HDEL', KEYS[2], client.token_hash)
client.token_hash = ARGV[2]
client.expires_at = tonumber(ARGV[3])
if ARGV[2] ~= '' then
  redis.call('HSET', KEYS[2], ARGV[2],
    cjson.encode({client = ARGV[1], expires_at = tonumber(ARGV[3])}))
end
redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(client))
local event = ARGV[2] == '' and 'revoked' or 'rotated'
redis.call('XADD', KEYS[3], '*', 'type', event, 'client', ARGV[1])
return {'done', cjson.encode(client)}
"""

LABEL = (
    AUDITED
    + """
-- KEYS clients events; ARGV client labels
local raw = redis.call('HGET', KEYS[1], ARGV[1])
if not raw then return {'unknown'} end
local client, labels = cjson.decode(raw), cjson.decode(ARGV[2])
local former, same = client.labels or {}, true
for key, value in pairs(labels) do same = same and former[key] == value end
for key in pairs(former) do same = same and labels[key] ~= nil end
if same then return {'done'} end
if not recorded() then return {'moved'} end
client.labels = labels
if next(client.labels) == nil then client.labels = nil end
redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(client))
redis.call('XADD', KEYS[2], '*', 'type', 'labelled', 'client', ARGV[1])
return {'done'}
"""
)


BAR = (
    AUDITED
    + """
-- KEYS clients barred events; ARGV client why
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return {'unknown'} end
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1 then return {'already'} end
if not recorded() then return {'moved'} end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
redis.call('XADD', KEYS[3], '*', 'type', 'barred', 'client', ARGV[1])
return {'barred'}
"""
)

READMIT = (
    AUDITED
    + """
-- KEYS clients barred events; ARGV client
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return {'unknown'} end
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 0 then return {'already'} end
if not recorded() then return {'moved'} end
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('XADD', KEYS[3], '*', 'type', 'readmitted', 'client', ARGV[1])
return {'readmitted'}
"""
)


class TokenRecord(NamedTuple):
    """The client that a token belongs to, and the Unix time at which the token expires."""

    client: str
    expires_at: float


class ClientRecord(NamedTuple):
    """What Redis stores about a registered client; the fields are the keys of the stored JSON."""

    registered_at: float
    token_hash: str
    """Hash of the client's token; empty if the token is revoked."""
    expires_at: float
    """Unix time at which the token expires."""
    sample_cap: int | None = None
    """The cap on the client's sample count; None if each run's own cap applies."""
    labels: Mapping[str, str] = LABELS


@dataclass(frozen=True)
class ClientStore:
    """Registers and looks up clients.

    Args:
        redis: the connection to Redis.
        keys: names of the Redis keys of clients and tokens.
        audit: the log of operators' actions.
    """

    redis: RedisAccess
    keys: FederationKeys
    audit: AuditLog

    async def join(
        self,
        join_hash: str,
        token_hash: str,
        requested: str | None,
        fresh: str,
        now: float,
        expires: float,
    ) -> tuple[str, str, ClientRecord | None]:
        """Registers a client that presents a join token; the call is idempotent.

        Args:
            join_hash: hash of the join token.
            token_hash: hash of the client's own token.
            requested: the id that the client requests, if any.
            fresh: the id to use if neither the join token nor the client names an id.
            now: Unix time.
            expires: Unix time at which the client's token expires.
        Returns:
            ("joined", id, client), or (reason, id or "", None). The reason is "unknown", "used",
            "revoked", "expired", "taken" (the id exists already) or "token-taken" (another client
            has this token).
        """
        answer = await self.redis.run(
            JOIN,
            (self.keys.joins, self.keys.clients, self.keys.tokens, self.keys.events),
            join_hash,
            now,
            requested or "",
            fresh,
            token_hash,
            expires,
        )
        client = read_record(ClientRecord, answer[2]) if len(answer) > 2 else None
        return answer[0], answer[1] if len(answer) > 1 else "", client

    async def change_token(
        self, client: str, token_hash: str, expires: float, by: Attribution | str
    ) -> str:
        """Replaces a client's token, or revokes it if the hash is empty.

        Args:
            client: the client's id.
            token_hash: hash of the new token.
            expires: Unix time at which the new token expires.
            by: who requests the change. For an operator, this is an `Attribution`. For the client
                itself, it is the hash of the token in the client's request.
        Returns:
            "done", "unknown" (there is no such client), "taken" (another client has this token) or
            "invalid" (the token that the client presents is not valid any more).
        """
        keys = (self.keys.clients, self.keys.tokens, self.keys.events)
        presented = by if isinstance(by, str) else ""
        arguments = (client, token_hash, expires, presented)
        if isinstance(by, str):
            return (await self.redis.run(UNAUDITED + CHANGE, keys, *arguments))[0]
        act = Act("replace-token" if token_hash else "revoke-token", by, client)
        return (await self.audit.perform(act, AUDITED + CHANGE, keys, *arguments))[0]

    async def label(self, client: str, labels: Mapping[str, str], by: Attribution) -> str:
        """Replaces a client's labels; returns "done" or "unknown"."""
        act = Act("label", by, client, {"labels": dict(labels)})
        keys = (self.keys.clients, self.keys.events)
        return (await self.audit.perform(act, LABEL, keys, client, json.dumps(dict(labels))))[0]

    async def bar(self, client: str, by: Attribution) -> str:
        """Bars a client from the whole federation; returns "barred", "already" or "unknown".

        If the client takes part in a run, the caller has to evict it from that run as well.
        """
        keys = (self.keys.clients, self.keys.barred, self.keys.events)
        why = by.bar.model_dump_json()
        act = Act("evict-everywhere", by, client)
        return (await self.audit.perform(act, BAR, keys, client, why))[0]

    async def readmit(self, client: str, by: Attribution) -> str:
        """Undoes `bar`; returns "readmitted", "already" or "unknown"."""
        keys = (self.keys.clients, self.keys.barred, self.keys.events)
        act = Act("reinstate-everywhere", by, client)
        return (await self.audit.perform(act, READMIT, keys, client))[0]

    async def of_token(self, token_hash: str) -> TokenRecord | None:
        """The record of the client token that has this hash; None if there is no such token."""
        raw = await self.redis.ask("hget", self.keys.tokens, token_hash)
        return None if raw is None else read_record(TokenRecord, raw)

    async def record(self, client: str) -> ClientRecord | None:
        """One client's record."""
        raw = await self.redis.ask("hget", self.keys.clients, client)
        return None if raw is None else read_record(ClientRecord, raw)

    async def without_token(self, clients: Collection[str]) -> set[str]:
        """Those of the given clients that are registered and have a revoked or expired token."""
        if not clients:
            return set()
        now = await self.redis.time()
        stored = await self.redis.ask("hmget", self.keys.clients, [*clients])
        known = {client: raw for client, raw in zip(clients, stored, strict=True) if raw}
        records = {client: read_record(ClientRecord, raw) for client, raw in known.items()}
        return {
            client
            for client, record in records.items()
            if not record.token_hash or record.expires_at < now
        }

    async def away(self, clients: Collection[str]) -> set[str]:
        """Those of the given clients that said in their last request that they are away."""
        if not clients:
            return set()
        stored = await self.redis.ask("zmscore", self.keys.seen, [*clients])
        seen = zip(clients, stored, strict=True)
        return {client for client, at in seen if at is not None and silence(at, 0.0) == inf}

    async def count(self) -> int:
        """Number of registered clients."""
        return int(await self.redis.ask("hlen", self.keys.clients))

    async def records(self) -> dict[str, ClientRecord]:
        """Every registered client's record, keyed and sorted by id."""
        stored = by_client(await self.redis.ask("hgetall", self.keys.clients))
        return {client: read_record(ClientRecord, fields) for client, fields in stored.items()}

    async def facts(self, clients: Sequence[str]) -> dict[str, ClientFacts]:
        """The `ClientFacts` of the given clients, keyed by client id."""
        if not clients:
            return {}
        async with converted_errors(), self.redis.client.pipeline(transaction=False) as pipe:
            pipe.time()
            pipe.zmscore(self.keys.seen, [*clients])
            pipe.hmget(self.keys.software, clients)
            pipe.hmget(self.keys.barred, clients)
            time, *columns = await pipe.execute()
        now = unix_time(time)
        return {
            client: ClientFacts(
                None if seen is None else abs(seen),
                None if seen is None else silence(seen, now),
                software or "",
                None if why is None else parse_bar(why),
            )
            for client, seen, software, why in zip(clients, *columns, strict=True)
        }

    async def silences(self) -> dict[str, float]:
        """Seconds since each client's last request; infinite for a client that is away."""
        async with converted_errors(), self.redis.client.pipeline(transaction=False) as pipe:
            pipe.time()
            pipe.zrange(self.keys.seen, 0, -1, withscores=True)
            time, raw = await pipe.execute()
        now = unix_time(time)
        return {client: silence(float(at), now) for client, at in raw}

    async def saw(self, requests: Mapping[str, LastRequest]) -> None:
        """Stores when each client sent its last request, and what the request said.

        The clocks of api processes and workers may differ. The stored time is therefore the time of
        Redis' clock minus the age of the request.
        """
        if not requests:
            return
        now = await self.redis.time()
        times = {
            client: (now - one.age) * (-1 if one.away else 1) for client, one in requests.items()
        }
        async with converted_errors(), self.redis.client.pipeline(transaction=False) as pipe:
            pipe.zadd(self.keys.seen, times)
            pipe.hset(self.keys.software, mapping={c: one.software for c, one in requests.items()})
            await pipe.execute()
