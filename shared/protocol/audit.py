"""The audit log: its entries, the chain of their hashes, and a check that the chain is unbroken.

The hash of an entry is the SHA-256 of the canonical JSON of all its other fields (UTF-8, sorted
keys, no spaces). Every entry contains the hash of the previous entry. The hash of the last entry
therefore depends on the whole log. This hash is called the head of the log.
"""

import hashlib
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import Field

from rampart_fl.shared.errors import RampartError
from rampart_fl.shared.protocol.messages import Digest, Message

ActName = Literal[
    "submit",
    "cancel",
    "delete",
    "pause",
    "resume",
    "stop",
    "mode",
    "evict",
    "reinstate",
    "confirm",
    "dismiss",
    "evict-everywhere",
    "reinstate-everywhere",
    "label",
    "replace-token",
    "revoke-token",
    "make-join-tokens",
    "revoke-join-token",
    "add-operator",
    "revoke-operator",
]
"""The names of the operators' actions that the audit log records."""
START = "0" * 64
"""The head of an empty log."""


class AuditBroken(RampartError):
    """The audit log was altered after it was written."""

    status = 422
    slug = "audit-broken"
    title = "The audit log was altered"


class EntryContent(Message):
    """The content of an audit log entry, without its hash: who did what, when and why."""

    number: int = Field(ge=0, description="place in the log, counted from 0")
    time: str = Field(description="UTC, ISO 8601", examples=["2026-03-01T09:30:00.000Z"])
    actor: str = Field(description="name of the operator", examples=["ada"])
    act: str = Field(examples=["evict"])
    target: str = Field(description="whom or what the action concerns", examples=["client-07"])
    reason: str = Field(examples=["its site reported a breach"])
    details: dict[str, Any] = Field(default={}, examples=[{}])
    previous: Digest = Field(description="hash of the previous entry; zeros in the first entry")

    def digest(self) -> str:
        """The SHA-256 of the canonical JSON of all fields except `hash`."""
        content = self.model_dump(exclude={"hash"})
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()


class AuditEntry(EntryContent):
    """An entry of the audit log."""

    hash: Digest

    @staticmethod
    def of(content: EntryContent) -> "AuditEntry":
        """The entry with the given content, and with the hash of this content."""
        return AuditEntry(**content.model_dump(), hash=content.digest())


def timestamp(time: float) -> str:
    """Formats a Unix time as in the entries of the audit log.

    >>> timestamp(1_000_000.5)
    '1970-01-12T13:46:40.500Z'
    """
    moment = datetime.fromtimestamp(time, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def check_chain(entries: Iterable[AuditEntry], kept: str | None = None) -> tuple[int, str]:
    """Checks a whole log, starting with its first entry.

    Without `kept`, the check does not detect two changes: the last entries were removed, or all
    entries after a certain entry were replaced.

    Args:
        entries: all entries, oldest first.
        kept: a head that this log had at an earlier time.
    Returns:
        The number of entries, and the head.
    Raises:
        AuditBroken: an entry was altered, an entry is missing or out of order, or no entry has the
            hash `kept`.

    >>> check_chain([])[0]
    0
    """
    count, head, known = 0, START, {START}
    faults = []
    for entry in entries:
        if entry.number != count:
            faults.append(f"entry {entry.number} is in the place of entry {count}")
        if entry.previous != head:
            faults.append(f"entry {entry.number} does not contain the hash of the entry before it")
        if entry.digest() != entry.hash:
            faults.append(f"entry {entry.number} was altered")
        count, head = entry.number + 1, entry.hash
        known.add(head)
    if kept is not None and kept not in known:
        faults.append(f"no entry has the head {kept}: entries were removed or rewritten")
    if faults:
        raise AuditBroken("the audit log was altered: " + "; ".join(faults))
    return count, head
