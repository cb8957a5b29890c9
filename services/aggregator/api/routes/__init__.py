"""The HTTP API, version 1: one module per kind of resource.

A route checks a request, and reads or writes state. Code for waiting, connections and the admission
of uploads belongs in the package `api`. Redis keys and scripts belong in the package `state`.
"""

from typing import Any

from rampart_fl.shared.errors import RampartError, Unavailable
from rampart_fl.shared.protocol import refusals
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
    refusals.TooMany,  # Too many requests already wait on the connection.
    refusals.HeadTooLarge,
    RampartError,
    Unavailable,
)
OF_TOKENS = frozenset(
    {
        *(refusals.Unauthorized, refusals.OperatorExpired, refusals.OperatorRevoked),
        *(refusals.Forbidden, refusals.ReadOnly),
    }
)
"""Errors about tokens. Only routes that need a token send such errors."""
RETRY_AFTER: dict[str, Any] = {
    "Retry-After": {
        "description": "number of seconds after which the request may succeed",
        "required": True,
        "schema": {"type": "integer", "minimum": 1, "examples": [60]},
    }
}
"""The header of every response with the status 429."""


def problems(*errors: type[RampartError], token: bool = True) -> Responses:
    """A route's error responses for OpenAPI: its own `errors`, and the errors of all routes.

    Args:
        errors: errors that are special to the route.
        token: whether the route needs a token.

    >>> problems(refusals.Late)[410]["description"]
    '`urn:rampart:late`: The round is closed.'
    """
    texts: dict[int, list[str]] = {}
    anywhere = [error for error in ANYWHERE if token or error not in OF_TOKENS]
    for error in (*errors, *anywhere):
        texts.setdefault(error.status, []).append(f"`urn:rampart:{error.slug}`: {error.title}.")
    schema = Problem.model_json_schema()
    return {
        status: {
            "description": " ".join(lines),
            "content": {"application/problem+json": {"schema": schema}},
            **({"headers": RETRY_AFTER} if status == refusals.TooMany.status else {}),
        }
        for status, lines in sorted(texts.items())
    }


PROBLEMS = problems()
"""Problem responses that any route with a token can send."""
PUBLIC_PROBLEMS = problems(token=False)
"""Problem responses that any route without a token can send."""
