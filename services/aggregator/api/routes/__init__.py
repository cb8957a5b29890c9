"""The HTTP API, version 1: one module per kind of resource.

A route checks a request, and reads or writes state. Code for waiting, connections and the admission
of uploads belongs in the package `api`. Redis keys and scripts belong in the package `state`.
"""

from typing import Any

from rampart_fl.shared.errors import RampartError, Unavailable
from rampart_fl.shared.protocol import refusals, wire
from rampart_fl.shared.protocol.messages import Problem

Responses = dict[int | str, dict[str, Any]]
ANYWHERE: tuple[type[RampartError], ...] = (
    refusals.Malformed,
    refusals.Unauthorized,
    refusals.OperatorExpired,
    refusals.OperatorRevoked,
    refusals.Forbidden,
    refusals.ReadOnly,
    refusals.SlowHead,
    refusals.SlowBody,
    refusals.TooLarge,
    refusals.UnsupportedMedia,
    refusals.InvalidRequest,
    refusals.HeadTooLarge,
    RampartError,
    Unavailable,
)
BYTES = {wire.MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}
"""The OpenAPI content of a body that is a model or an update."""


def problems(*errors: type[RampartError]) -> Responses:
    """A route's error responses for OpenAPI: those for `errors`, and those that any route can send.

    >>> problems(refusals.Late)[410]["description"]
    '`urn:rampart:late`: The round is closed.'
    """
    texts: dict[int, list[str]] = {}
    for error in (*errors, *ANYWHERE):
        texts.setdefault(error.status, []).append(f"`urn:rampart:{error.slug}`: {error.title}.")
    schema = Problem.model_json_schema()
    return {
        status: {
            "description": " ".join(lines),
            "content": {"application/problem+json": {"schema": schema}},
        }
        for status, lines in sorted(texts.items())
    }


PROBLEMS = problems()
"""Problem responses that any route can send."""
