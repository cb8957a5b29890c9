"""Structured logs: one JSON object per line, with the round and the client, if known."""

import logging
import sys

from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.json import JsonFormatter

NAMES = {"levelname": "level", "name": "logger", "exc_info": "error"}
"""New names for a log record's fields in the JSON line; `extra` fields keep their names."""


def formatter(service: str) -> logging.Formatter:
    """Creates a formatter that turns a service's log records into JSON lines.

    >>> record = logging.makeLogRecord({"msg": "round %d", "args": (3,), "levelname": "INFO"})
    >>> formatter("aggregator").format(record)  # doctest: +ELLIPSIS
    '{"level": "INFO", "logger": null, "message": "round 3", "service": "aggregator", ...}'
    """
    return JsonFormatter(
        ["levelname", "name", "message"],
        rename_fields=NAMES,
        static_fields={"service": service},
        # Leave out the field in which uvicorn repeats each message with colour codes.
        reserved_attrs=[*RESERVED_ATTRS, "color_message"],
        timestamp="time",
    )


def configure(service: str, level: str = "INFO") -> None:
    """Sends all logs of this process to standard error as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(service))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logging.getLogger("httpcore").setLevel(logging.WARNING)
