"""The audit log: one script carries out an operator's action and writes the action's log entry.

The head of the log is the hash of its last entry. Redis scripts cannot compute SHA-256, so the
caller reads the head, computes the next entry, and passes both to the script. If the head changes
before the script runs, the script does nothing, and the caller tries again with the new head.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from rampart_fl.services.aggregator.state.keys import FederationKeys
from rampart_fl.services.aggregator.state.redis_access import RedisAccess
from rampart_fl.shared.protocol.audit import (
    START,
    ActName,
    AuditBroken,
    AuditEntry,
    EntryContent,
    timestamp,
)
from rampart_fl.shared.protocol.clients import BarReason

AUDITED = """
-- The last two KEYS are audit, audit_head; the last three ARGV are expected_head, entry, new_head.
local function recorded()
  local head = redis.call('GET', KEYS[#KEYS]) or string.rep('0', 64)
  if head ~= ARGV[#ARGV - 2] then return false end
  redis.call('RPUSH', KEYS[#KEYS - 1], ARGV[#ARGV - 1])
  redis.call('SET', KEYS[#KEYS], ARGV[#ARGV])
  return true
end
"""
"""The beginning of every script that carries out an operator's action. After the script has checked
that the action is possible, it calls `recorded()`. If the head is still the expected head,
`recorded()` writes the entry and returns true, and the script carries out the action. If the head
has changed, `recorded()` returns false, and the script only returns {'moved'}."""
UNAUDITED = """
local function recorded() return true end
"""
"""Replaces `AUDITED` in a script if a client, not an operator, requests the change. The script then
writes no entry."""


@dataclass(frozen=True)
class Attribution:
    """The author, the reason and the Unix time of an action."""

    actor: str
    reason: str
    time: float

    @property
    def bar(self) -> BarReason:
        """The reason that is stored if this action bars a client."""
        return BarReason(reason=self.reason, detector="operator", at=self.time)


@dataclass(frozen=True)
class Act:
    """An operator's action, before it gets a number in the log."""

    name: ActName
    by: Attribution
    target: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    def entry(self, number: int, previous: str) -> AuditEntry:
        """The log entry of this action; `previous` is the hash of the previous entry."""
        content = EntryContent(
            number=number,
            time=timestamp(self.by.time),
            actor=self.by.actor,
            act=self.name,
            target=self.target,
            reason=self.by.reason,
            details=dict(self.details),
            previous=previous,
        )
        return AuditEntry.of(content)


@dataclass(frozen=True)
class AuditLog:
    """Carries out operators' actions, writes an entry for each action, and reads the entries.

    Args:
        redis: the connection to Redis.
        keys: the keys of the federation.
    """

    redis: RedisAccess
    keys: FederationKeys

    async def perform(
        self, act: Act, script: str, keys: Sequence[str], *args: str | int | float
    ) -> list[str]:
        """Runs a script that begins with `AUDITED`; returns its result.

        If the head of the log changes before the script runs, `perform` runs the script again, with
        a new entry.

        Args:
            act: the action. The script writes the action's entry only if it carries out the action.
            script: the script.
            keys: the keys that the script works on, without the keys of the log.
            args: the script's own arguments, without the arguments of `AUDITED`.
        """
        names = (*keys, self.keys.audit, self.keys.audit_head)
        while True:
            number, head = await self.end()
            entry = act.entry(number, head)
            answer = await self.redis.run(
                script, names, *args, head, entry.model_dump_json(), entry.hash
            )
            if answer[0] != "moved":
                return answer

    async def end(self) -> tuple[int, str]:
        """The number of entries in the log, and the head of the log."""
        # Both values are read in one atomic step. With two reads, an entry could be added in
        # between, and the head would then not be the hash of the last counted entry.
        number, head = await self.redis.read(
            ("LLEN", self.keys.audit), ("GET", self.keys.audit_head)
        )
        return number, head or START

    async def entries(self, since: int, limit: int) -> list[AuditEntry]:
        """Up to `limit` entries, starting with entry number `since`.

        Raises:
            AuditBroken: an element of the log cannot be parsed as an entry.
        """
        texts = await self.redis.ask("lrange", self.keys.audit, since, since + limit - 1)
        entries = []
        for number, text in enumerate(texts, since):
            try:
                entries.append(AuditEntry.model_validate_json(text))
            except ValidationError:
                raise AuditBroken(f"entry {number} cannot be parsed") from None
        return entries
