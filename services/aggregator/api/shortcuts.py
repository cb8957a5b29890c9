"""Answers the two busiest kinds of requests directly: `GET /v1/ticket` and uploads.

Each client sends at least one ticket request or upload per round. If FastAPI answers such a
request, it spends most of the time on the resolution of dependencies. While a request waits, the
stack frames of FastAPI and its middleware take most of the request's memory. A shortcut therefore
bypasses FastAPI and all middleware: the shortcut calls the same functions, with the same arguments,
as the regular route. The shortcut passes malformed requests to the regular route, which reports the
error.
"""

import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Literal, cast

from fastapi import APIRouter, Request, Response

from rampart_fl.services.aggregator.api.deps import bearer, identify_unless_away
from rampart_fl.services.aggregator.api.identities import TokenOwner
from rampart_fl.services.aggregator.api.problems import Receive, Scope, Send, answer_error
from rampart_fl.services.aggregator.api.request_timing import RequestTiming
from rampart_fl.services.aggregator.api.routes import tickets, training
from rampart_fl.services.aggregator.api.runtime import Runtime
from rampart_fl.shared.experiment.start import RUN_ID

UPLOAD = re.compile(rf"/v1/runs/({RUN_ID[1:-1]})/rounds/([0-9]{{1,9}})/(update|probe)")
RUN = re.compile(RUN_ID)
AWAY = {None: False, "false": False, "true": True}
"""The values of the parameter `away` that a shortcut understands."""


class Shortcuts:
    """Calls the busiest routes directly, and passes all other requests to the application.

    Args:
        app: the application to which other requests are passed.
        runtime: the objects that all requests of the process share.
    """

    def __init__(self, app: Any, runtime: Runtime) -> None:
        self._app = app
        self._runtime = runtime
        self._ticket = _route_of(tickets.router, tickets.ticket)
        self._upload = _route_of(training.router, training.upload)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        answering = self._find(scope, receive) if scope["type"] == "http" else None
        if answering is None:
            await self._app(scope, receive, send)
        else:
            timed = RequestTiming(partial(_answer, answering), self._runtime.metrics)
            await timed(scope, receive, send)

    def _find(self, scope: Scope, receive: Receive) -> Awaitable[Response] | None:
        """The call that answers a request; None if there is no shortcut for the request."""
        request, method, path = Request(scope, receive), scope["method"], scope["path"]
        if method == "GET" and path == "/v1/ticket":
            run, away = map(request.query_params.get, ("run", "away"))
            valid = (run is None or RUN.fullmatch(run)) and away in AWAY
            if valid and not _has_body(request):
                scope["route"] = self._ticket
                return self._show_ticket(request, run, AWAY[away])
        if method == "PUT" and (match := UPLOAD.fullmatch(path)):
            run, number, kind = match.groups()
            scope["route"] = self._upload
            return self._take_upload(
                request, run, int(number), cast(Literal["update", "probe"], kind)
            )
        return None

    async def _show_ticket(self, request: Request, run: str | None, away: bool) -> Response:
        known = await self._identify(request, away)
        preferences = await self._response_preferences(request)
        held = request.headers.get("if-none-match")
        del request  # Frees memory during the wait: many requests can wait here.
        return await tickets.ticket(self._runtime, known, preferences, run, held)

    async def _take_upload(
        self, request: Request, run: str, number: int, kind: Literal["update", "probe"]
    ) -> Response:
        known = await self._identify(request)
        parts = await self._runtime.run(run)
        preferences = await self._response_preferences(request)
        return await training.upload(
            request, self._runtime, known, parts, preferences, number, kind
        )

    async def _identify(self, request: Request, away: bool = False) -> TokenOwner:
        await self._runtime.await_conversion()
        token = await bearer(request, None)
        return await identify_unless_away(request, self._runtime, token, away)

    async def _response_preferences(self, request: Request) -> tickets.ResponsePreferences:
        prefer, accept, held = map(request.headers.get, ("prefer", "accept", "rampart-model"))
        return await tickets.response_preferences(self._runtime, prefer, accept, held or "")


def _has_body(request: Request) -> bool:
    """Whether the request can have a body; if so, it needs the middleware `SmallBodies`."""
    headers = request.headers
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


async def _answer(
    answering: Awaitable[Response], scope: Scope, receive: Receive, send: Send
) -> None:
    try:
        response = await answering
    except Exception as error:  # A shortcut bypasses FastAPI's error handlers.
        response = await answer_error(Request(scope), error)
    await response(scope, receive, send)


def _route_of(router: APIRouter, endpoint: Callable[..., Any]) -> Any:
    """The route of an endpoint; metrics use the route as a label."""
    return next(route for route in router.routes if getattr(route, "endpoint", None) is endpoint)
