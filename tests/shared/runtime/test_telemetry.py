"""Log lines: one JSON object each."""

import json
import logging
import sys
from datetime import UTC, datetime

from rampart_fl.shared.runtime.telemetry import formatter


def line(**fields: object) -> str:
    record = logging.makeLogRecord({"name": "rampart.round", "levelname": "WARNING", **fields})
    return formatter("aggregator").format(record)


def test_extra_fields_of_a_record_are_logged_beside_its_message() -> None:
    extra = {"round": 3, "client": "ada", "path": sys.path, "color_message": "\x1b[1mlate"}
    text = line(msg="%s is late\nby far", args=("ada",), created=1.5e9, **extra)
    assert "\n" not in text
    entry = json.loads(text)
    assert datetime.fromisoformat(entry.pop("time")) == datetime.fromtimestamp(1.5e9, UTC)
    assert entry == {
        "level": "WARNING",
        "logger": "rampart.round",
        "service": "aggregator",
        "message": "ada is late\nby far",
        "round": 3,
        "client": "ada",
        "path": sys.path,
    }


def test_exceptions_and_unserializable_objects_are_logged() -> None:
    try:
        raise ZeroDivisionError("of nothing")
    except ZeroDivisionError:
        text = line(msg="broken", exc_info=sys.exc_info(), odd=object())
    entry = json.loads(text)
    assert entry["error"].endswith("ZeroDivisionError: of nothing")
    assert entry["odd"].startswith("<object object")
