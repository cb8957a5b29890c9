"""Parses stored values; ignores fields that only newer releases know.

An upgrade can therefore be rolled back as long as both releases have the same schema version.
"""

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel

StoredMessage = TypeVar("StoredMessage", bound=BaseModel)
Record = TypeVar("Record", bound=tuple[Any, ...])


def read_model(kind: type[StoredMessage], text: str | bytes) -> StoredMessage:
    """Parses a stored message, including nested messages.

    >>> from rampart_fl.shared.protocol.messages import Receipt
    >>> text = '{"round": 1, "kind": "probe", "client": "a", "digest": "%s", "new": 2}' % ("0" * 64)
    >>> read_model(Receipt, text).round
    1
    """
    return kind.model_validate_json(text, extra="ignore")


def read_record(kind: type[Record], stored: str | Mapping[str, Any]) -> Record:
    """Parses a stored named tuple, given as JSON or as the fields of the JSON object.

    >>> from typing import NamedTuple
    >>> Place = NamedTuple("Place", [("row", int), ("column", int)])
    >>> read_record(Place, '{"row": 3, "column": 4, "new": 5}')
    Place(row=3, column=4)
    """
    fields = json.loads(stored) if isinstance(stored, str) else stored
    return kind(**{name: fields[name] for name in kind.__annotations__ if name in fields})
