"""Reasons that operators give for their actions."""

from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

PRINTABLE = "^[^\\u0000-\\u001f\\u007f-\\u009f\\u2028-\\u202e\\u2066-\\u2069]*$"
"""Matches text without control characters. Line breaks and bidirectional overrides are examples of
control characters."""
NO_REASON = "operator's decision"
"""The reason that is recorded for an action if the operator gives no reason."""


def _not_blank(reason: str) -> str:
    """Refuses a reason of only white space; an empty reason is allowed."""
    if reason.isspace():
        raise PydanticCustomError(
            "blank_reason",
            "the reason is only white space ({count} characters); write a reason, or leave it out",
            {"count": len(reason)},
        )
    return reason


Reason = Annotated[
    str,
    Field(
        max_length=500,
        pattern=PRINTABLE,
        description="kept in the audit log",
        examples=["its update was far from all others"],
    ),
    AfterValidator(_not_blank),
]
