"""The links of the OpenAPI document: each leads from a response to a possible next operation."""

from collections.abc import Mapping
from typing import Any

from fastapi.routing import APIRoute

Link = dict[str, Any]


def operation_id(route: APIRoute) -> str:
    """The id of an operation in the OpenAPI document; links refer to this id."""
    return route.name


def link(operation: str, **parameters: str) -> Link:
    """A link to an operation, with parameters taken from the response.

    Args:
        operation: the operation's id.
        parameters: maps each parameter to a field of the response's JSON. This field contains the
            value of the parameter.

    >>> link("one_run", run="run")
    {'operationId': 'one_run', 'parameters': {'run': '$response.body#/run'}}
    """
    values = {name: f"$response.body#/{field}" for name, field in parameters.items()}
    return {"operationId": operation, **({"parameters": values} if values else {})}


def _named(*links: Link) -> Mapping[str, Any]:
    return {"links": {one["operationId"]: one for one in links}}


OF_RUN = _named(
    *(link(name, run="run") for name in ("one_run", "current", "events", "verdicts")),
    *(link(name, run="run") for name in ("pause", "stop", "delete_run")),
)
"""Links from a run to its status and records, and to operators' actions on the run."""
OF_STATUS = _named(link("one_round", run="run", round="round"), link("rounds", run="run"))
"""Links from a run's status to the run's rounds."""
OF_CLIENT = _named(link("client", client_id="client_id"), link("ticket"))
"""Links in the response to a join request: the new client's entry, and its first ticket."""
OF_TICKET = _named(
    link("model", run="run", name="models/model"),
    link("upload", run="run", round="round"),
    link("acceptance", run="run"),
)
"""Links from a ticket to its model, to the upload, and to the request that accepts the run."""
OF_JOIN_TOKENS = _named(link("join"))
"""Link in the OpenAPI document: from new join tokens to the request that uses such a token."""
