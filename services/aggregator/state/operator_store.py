"""The operators: each has a name, a role, and a token, which can expire or be revoked."""

import json
from dataclasses import dataclass
from typing import NamedTuple

from rampart_fl.services.aggregator.state.audit_log import AUDITED, Act, Attribution, AuditLog
from rampart_fl.services.aggregator.state.keys import FederationKeys
from rampart_fl.services.aggregator.state.redis_access import RedisAccess
from rampart_fl.services.aggregator.state.stored_values import read_record
from rampart_fl.shared.protocol.audit import timestamp
from rampart_fl.shared.protocol.operators import Role

OWNER = "owner"
"""The name of the operator whose token is in the aggregator's settings."""

ADD = (
    AUDITED
    + """
-- KEYS operators operator_tokens; ARGV name token_hash record now
local raw = redis.call('HGET', KEYS[1], ARGV[1])
if raw then
  local known = cjson.decode(raw)
  local expired = known.expires_at ~= cjson.null and known.expires_at <= tonumber(ARGV[4])
  local valid = known.revoked_at == cjson.null and not expired
  if known.token_hash == ARGV[2] then return {valid and 'added' or 'over', raw} end
  if valid then return {'taken', raw} end
end
if not recorded() then return {'moved'} end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
redis.call('HSET', KEYS[2], ARGV[2], ARGV[1])
return {'added', ARGV[3]}
"""
)

REVOKE = (
    AUDITED
    + """
-- KEYS operators; ARGV name now
local raw = redis.call('HGET', KEYS[1], ARGV[1])
if not raw then return {'unknown'} end
local known = cjson.decode(raw)
if known.revoked_at ~= cjson.null then return {'already'} end
if not recorded() then return {'moved'} end
known.revoked_at = tonumber(ARGV[2])
redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(known))
return {'revoked'}
"""
)


class OperatorRecord(NamedTuple):
    """What Redis stores about an operator; the fields are the keys of the stored JSON.

    All times in this record are Unix times.
    """

    role: Role
    token_hash: str
    created_at: float
    created_by: str
    """Name of the operator that added this operator."""
    expires_at: float | None
    """Time at which the token expires; None if the token is valid until it is revoked."""
    revoked_at: float | None = None


@dataclass(frozen=True)
class OperatorStore:
    """Adds, revokes and looks up operators.

    Args:
        redis: the connection to Redis.
        keys: the keys of the operators and their tokens.
        audit: the log of operators' actions.
    """

    redis: RedisAccess
    keys: FederationKeys
    audit: AuditLog

    async def add(
        self, name: str, role: Role, token_hash: str, expires_at: float | None, by: Attribution
    ) -> tuple[str, OperatorRecord]:
        """Adds an operator.

        The name of an existing operator can be reused if this operator's token is no longer valid.
        The new operator then replaces the existing one.

        Returns:
            The first value is "added" if the token is stored, now or by an earlier request, and is
            valid. It is "over" if an earlier request stored the token, but the token has expired or
            been revoked. It is "taken" if an operator of this name has another valid token. The
            second value is the stored record of the operator.
        """
        record = OperatorRecord(role, token_hash, by.time, by.actor, expires_at)
        until = None if expires_at is None else timestamp(expires_at)
        act = Act("add-operator", by, name, {"role": role, "expires_at": until})
        keys = (self.keys.operators, self.keys.operator_tokens)
        arguments = (name, token_hash, json.dumps(record._asdict()), by.time)
        answer, stored = await self.audit.perform(act, ADD, keys, *arguments)
        return answer, read_record(OperatorRecord, stored)

    async def revoke(self, name: str, by: Attribution) -> str:
        """Revokes an operator's token; returns "revoked", "already" or "unknown"."""
        act, keys = Act("revoke-operator", by, name), (self.keys.operators,)
        return (await self.audit.perform(act, REVOKE, keys, name, by.time))[0]

    async def of_token(self, token_hash: str) -> tuple[str, OperatorRecord] | None:
        """The name and record of the operator to whom a token belongs; None if it is unknown.

        `token_hash` is the hash of the operator's current token or of a previous token.
        """
        name = await self.redis.ask("hget", self.keys.operator_tokens, token_hash)
        if name is None:
            return None
        raw = await self.redis.ask("hget", self.keys.operators, name)
        return None if raw is None else (name, read_record(OperatorRecord, raw))

    async def records(self) -> dict[str, OperatorRecord]:
        """Every operator's record, keyed and sorted by name."""
        raw = await self.redis.ask("hgetall", self.keys.operators)
        return {name: read_record(OperatorRecord, raw[name]) for name in sorted(raw)}
