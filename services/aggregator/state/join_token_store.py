"""The join tokens, with which clients register."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from rampart_fl.services.aggregator.state.audit_log import AUDITED, Act, Attribution, AuditLog
from rampart_fl.services.aggregator.state.keys import FederationKeys
from rampart_fl.services.aggregator.state.redis_access import RedisAccess
from rampart_fl.shared.protocol.audit import timestamp
from rampart_fl.shared.protocol.messages import LABELS

ADD_JOINS = (
    AUDITED
    + """
-- KEYS joins; ARGV joins_json (by hash)
local joins = cjson.decode(ARGV[1])
local known = ''
for hash in pairs(joins) do
  local raw = redis.call('HGET', KEYS[1], hash)
  if raw then
    local join = cjson.decode(raw)
    if join.used or join.revoked then return {'over', raw} end
    known = raw
  end
end
if known ~= '' then return {'added', known} end
if not recorded() then return {'moved'} end
for hash, join in pairs(joins) do redis.call('HSET', KEYS[1], hash, join) end
return {'added', ''}
"""
)

REVOKE_JOIN = (
    AUDITED
    + """
-- KEYS joins; ARGV join_hash now
local raw = redis.call('HGET', KEYS[1], ARGV[1])
if not raw then return {'unknown'} end
local join = cjson.decode(raw)
if join.used then return {'used', join.used} end
if join.revoked then return {'revoked'} end
if not recorded() then return {'moved'} end
join.revoked = true
join.expires_at = tonumber(ARGV[2])
redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(join))
return {'revoked'}
"""
)
"""Marks a join token as revoked, but keeps its record until `forget` deletes it. Later requests to
use or revoke this token therefore get the answer that it is revoked. The script also sets the
token's expiry time to now: processes of an older release ignore the field `revoked`, but check the
expiry time."""


class JoinTokenRecord(NamedTuple):
    """What Redis stores about a new join token; the fields are the keys of the stored JSON.

    Scripts add `used` and `token_hash` when a client joins, and `revoked` when an operator revokes
    the token.
    """

    expires_at: float
    """Unix time at which the join token expires."""
    client_id: str | None = None
    """The id that the joining client gets; None if the client may request an id."""
    sample_cap: int | None = None
    """The cap on the client's sample count; None if each run's own cap applies."""
    labels: Mapping[str, str] = LABELS

    def to_json(self) -> str:
        """The record as JSON, without empty fields, because the Lua scripts treat null as true."""
        return json.dumps({name: value for name, value in self._asdict().items() if value})


@dataclass(frozen=True)
class JoinTokenStore:
    """Makes, revokes and forgets join tokens; `ClientStore.join` uses them.

    Args:
        redis: the connection to Redis.
        keys: the name of the Redis key of the join tokens.
        audit: the log of operators' actions.
    """

    redis: RedisAccess
    keys: FederationKeys
    audit: AuditLog

    async def add(self, joins: Mapping[str, JoinTokenRecord], by: Attribution) -> tuple[str, float]:
        """Stores join tokens, keyed by their hashes; all tokens must expire at the same time.

        Returns:
            The first value is "over" if one of the tokens is already stored, and was used or
            revoked. Otherwise, it is "added", even if an earlier request has stored the same
            tokens. The second value is the Unix time at which the stored tokens expire.
        """
        clients = [join.client_id for join in joins.values() if join.client_id is not None]
        until = max(join.expires_at for join in joins.values())
        details: dict[str, Any] = {"count": len(joins), "expires_at": timestamp(until)}
        if clients:
            details["clients"] = clients
        act = Act("make-join-tokens", by, details=details)
        texts = {hash_: join.to_json() for hash_, join in joins.items()}
        answer, known = await self.audit.perform(
            act, ADD_JOINS, (self.keys.joins,), json.dumps(texts)
        )
        return answer, json.loads(known)["expires_at"] if known else until

    async def revoke(self, join_hash: str, by: Attribution) -> str:
        """Revokes a join token.

        Returns:
            "revoked", "used" or "unknown". The result is "revoked" even if the token was revoked
            before. It is "used" if a client has used the token.
        """
        act = Act("revoke-join-token", by, join_hash)
        arguments = (join_hash, by.time)
        return (await self.audit.perform(act, REVOKE_JOIN, (self.keys.joins,), *arguments))[0]

    async def forget(self, expired_before: float) -> int:
        """Deletes the unused join tokens that expired before a Unix time; returns their number."""
        cursor, count = 0, 0
        while True:
            cursor, joins = await self.redis.ask("hscan", self.keys.joins, cursor, count=1000)
            old = [hash_ for hash_, text in joins.items() if _expired(text, expired_before)]
            if old:
                count += await self.redis.ask("hdel", self.keys.joins, *old)
            if not cursor:
                return count


def _expired(join: str, before: float) -> bool:
    """Whether a join token is unused, and expired before the Unix time `before`."""
    fields = json.loads(join)
    return "used" not in fields and fields["expires_at"] < before
