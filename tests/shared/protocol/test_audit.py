"""The audit log's hash chain: a hash computed by hand, and tampered logs."""

import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from rampart_fl.shared.protocol.audit import (
    START,
    AuditBroken,
    AuditEntry,
    EntryContent,
    check_chain,
)

Log = list[AuditEntry]
BY_HAND = (
    '{"act":"evict","actor":"ada","details":{"a":[1,null],"b":"ü"},"number":0,'
    '"previous":"0000000000000000000000000000000000000000000000000000000000000000",'
    '"reason":"\\"odd\\" sensor","target":"client-07","time":"2026-03-01T09:30:00.000Z"}'
)
"""The canonical JSON of an entry, written without the code under test."""


def first(**given: Any) -> EntryContent:
    fields = {
        "number": 0,
        "time": "2026-03-01T09:30:00.000Z",
        "actor": "ada",
        "act": "evict",
        "target": "client-07",
        "reason": '"odd" sensor',
        "details": {"b": "ü", "a": [1, None]},
        "previous": START,
    }
    return EntryContent.model_validate({**fields, **given})


def log(length: int, reason: str = "why") -> Log:
    entries: Log = []
    for number in range(length):
        previous = entries[-1].hash if entries else START
        content = first(number=number, previous=previous, reason=f"{reason} {number}")
        entries.append(AuditEntry.of(content))
    return entries


def altered(entry: AuditEntry, **given: Any) -> AuditEntry:
    return entry.model_copy(update=given)


def test_entry_hash_matches_hand_written_canonical_json() -> None:
    expected = "233d589e039f4924d7461e61ea1c127d5852683a69113ad0dcfb25b218ca1962"
    assert hashlib.sha256(BY_HAND.encode()).hexdigest() == expected
    entry = AuditEntry.of(first())
    assert entry.hash == expected
    assert entry.digest() == expected, "the hash itself is not hashed"
    again = AuditEntry.model_validate_json(entry.model_dump_json())
    assert again.digest() == expected, "and does not depend on how the entry travels"


def test_intact_log_is_valid_and_returns_its_head() -> None:
    assert check_chain([]) == (0, START)
    entries = log(4)
    assert check_chain(entries) == (4, entries[3].hash)
    for kept in (START, *(entry.hash for entry in entries)):
        assert check_chain(iter(entries), kept) == (4, entries[3].hash)


@pytest.mark.parametrize("position", [0, 1, 3])
@pytest.mark.parametrize(
    "change",
    [
        {"time": "2026-03-01T09:30:00.001Z"},
        {"actor": "eve"},
        {"act": "reinstate"},
        {"target": "client-08"},
        {"reason": ""},
        {"details": {}},
        {"details": {"b": "ü", "a": [1, 0]}},
        {"number": 7},
        {"previous": "f" * 64},
        {"hash": "f" * 64},
    ],
    ids=str,
)
def test_altered_entry_is_detected(position: int, change: dict[str, Any]) -> None:
    entries = log(4)
    entries[position] = altered(entries[position], **change)
    with pytest.raises(AuditBroken):
        check_chain(entries)


def test_altered_entry_with_a_new_hash_is_detected_at_the_next_entry() -> None:
    entries = log(4)
    forged = AuditEntry.of(first(number=1, previous=entries[0].hash, reason="forged"))
    entries[1] = forged
    with pytest.raises(
        AuditBroken, match=r"entry 2 does not contain the hash of the entry before it$"
    ):
        check_chain(entries)


def swap(entries: Log) -> Log:
    return [entries[0], entries[2], entries[1], entries[3]]


@pytest.mark.parametrize(
    ("tamper", "text"),
    [
        (lambda e: e[1:], "entry 1 is in the place of entry 0"),
        (lambda e: [e[0], *e[2:]], "entry 2 is in the place of entry 1"),
        (swap, "entry 2 is in the place of entry 1"),
        (lambda e: [*e, e[-1]], "entry 3 is in the place of entry 4"),
        (lambda e: [e[0], e[1], *log(4, "other")[2:]], "entry 2 does not contain"),
    ],
    ids=["first", "middle", "order", "twice", "other"],
)
def test_missing_moved_duplicated_or_replaced_entries_are_detected(
    tamper: Callable[[Log], Log], text: str
) -> None:
    with pytest.raises(AuditBroken, match=text):
        check_chain(tamper(log(4)))


@pytest.mark.parametrize(
    "tamper",
    [lambda e: e[:-1], lambda e: [], lambda e: log(4, "anew"), lambda e: [*e[:2], *more(e[:2])]],
    ids=["cut", "emptied", "anew", "anew-from-entry-2"],
)
def test_only_a_saved_head_reveals_a_truncated_or_rewritten_tail(
    tamper: Callable[[Log], Log],
) -> None:
    entries = log(4)
    tampered = tamper(entries)
    check_chain(tampered)
    with pytest.raises(AuditBroken, match=f"no entry has the head {entries[3].hash}"):
        check_chain(tampered, entries[3].hash)


def more(entries: Log) -> Log:
    """Two forged entries that continue a log."""
    third = AuditEntry.of(first(number=2, previous=entries[-1].hash, reason="forged"))
    return [third, AuditEntry.of(first(number=3, previous=third.hash, reason="forged"))]
