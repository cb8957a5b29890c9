"""Explains to operators why the aggregator refused a request, and says what to do next."""

import re

import httpx

from rampart_fl.shared.agent.http_client import detail_of
from rampart_fl.shared.protocol.refusals import InvalidRequest, RunNotFound, RunOver

FIELD = re.compile(r"(?:^|(?<=; ))(?:body|path|query)\.(\w+)[^:;]*(?=: )")
"""Matches the place of an error in a request, such as `body.count` or `body.labels.site.[key]`."""
OPTIONS = {
    "before": "--before",
    "client": "CLIENT",
    "client_id": "CLIENT",
    "count": "--count",
    "labels": "label",
    "lifetime": "--lifetime",
    "lifetime_seconds": "--expires",
    "name": "NAME",
    "reason": "--reason",
    "since": "--since",
    "submission": "--submission",
    "wait_seconds": "--wait",
}
"""The command-line option or argument that supplies a field of a request, keyed by field."""
OPTIONS_OF = {
    "/v1/runs": {"name": "--name"},
    "/v1/join-tokens": {"labels": "--label"},
}
"""Entries that replace those of `OPTIONS` for a route, keyed by route."""


def explained(answer: httpx.Response) -> str:
    """The reason why the aggregator refused a request, in one line."""
    detail, path = detail_of(answer), answer.request.url.path
    if _is(answer, InvalidRequest.slug):
        names = {**OPTIONS, **OPTIONS_OF.get(path, {})}
        return FIELD.sub(lambda found: names.get(found[1], found[1]), detail)
    if _is(answer, RunNotFound.slug):
        return f"{detail}; the command `rampart runs` lists all runs"
    if _is(answer, RunOver.slug) and path.endswith("/evict"):
        return f"{detail}; --everywhere bars the client from all later runs"
    if _is(answer, RunOver.slug) and path.endswith("/confirm"):
        return f"{detail}; `rampart evict --everywhere` bars the client from all later runs"
    if answer.status_code == 401 and detail == "unknown token":
        return (
            f"{detail}; check --token and RAMPART_OPERATOR_TOKEN. Each `rampart serve` makes a new "
            "token: unset RAMPART_OPERATOR_TOKEN to use the saved one"
        )
    return detail


def _is(answer: httpx.Response, slug: str) -> bool:
    """Whether an answer reports an error with this slug, which is the last part of its type."""
    return f'"urn:rampart:{slug}"' in answer.text
