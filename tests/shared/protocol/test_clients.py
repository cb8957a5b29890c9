"""Reasons for bars: each kind of stored text is read as that kind and written unchanged."""

import json

import pytest
from pydantic import TypeAdapter, ValidationError

from rampart_fl.shared.protocol.clients import (
    Bar,
    BarReason,
    ClientInfo,
    ConfirmedFinding,
    Finding,
    Quarantine,
)
from rampart_fl.shared.protocol.messages import VerdictRecord
from rampart_fl.shared.protocol.runs import Member

OPERATOR = {"reason": "a test", "detector": "operator", "at": 5.5}
FINDING = {
    "detector": "norm_bound",
    "score": None,
    "threshold": 5.0,
    "evidence": 0.0,
    "reason": "too far",
    "round": 3,
    "at": 6.5,
}
CONFIRMED = {**FINDING, "confirmed": "I looked"}
HELD = {**FINDING, "kind": "proposal", "until": 9}


@pytest.mark.parametrize(
    ("stored", "kind"),
    [(OPERATOR, BarReason), (FINDING, Finding), (CONFIRMED, ConfirmedFinding)],
)
def test_bar_reasons_are_parsed_by_their_keys_and_round_trip(
    stored: dict[str, object], kind: type[BarReason]
) -> None:
    why: Bar = TypeAdapter[Bar](Bar).validate_json(json.dumps(stored))
    assert type(why) is kind
    assert json.loads(why.model_dump_json()) == stored
    member = Member(client_id="a", evicted=True, eviction=why)
    assert member.model_dump(mode="json")["eviction"] == stored
    assert Member.model_validate_json(member.model_dump_json()) == member
    info = ClientInfo(client_id="a", registered_at=1.0, last_seen=None, online=False, barred=why)
    assert info.model_dump(mode="json")["barred"] == stored


def test_quarantine_round_trips_unchanged() -> None:
    member = Member.model_validate({"client_id": "a", "quarantine": HELD})
    assert member.model_dump(mode="json")["quarantine"] == HELD
    with pytest.raises(ValidationError):
        Quarantine.model_validate({**HELD, "kind": "eviction"})


def test_finding_copies_the_fields_of_its_verdict() -> None:
    verdict = VerdictRecord(
        client="a",
        decision="evicted",
        detector="norm_bound",
        score=None,
        threshold=5.0,
        reason="too far",
    )
    assert Finding.of(verdict, 3, 6.5).model_dump() == FINDING
