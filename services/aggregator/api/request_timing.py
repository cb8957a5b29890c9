"""Middleware that measures how long requests take; it does not buffer streamed bodies."""

import time
from collections.abc import MutableMapping
from typing import Any

from rampart_fl.services.aggregator.api.problems import Receive, Scope, Send
from rampart_fl.services.aggregator.metrics import ProcessMetrics

HELD = ("/ticket", "/events")
"""The ends of the paths of long polls and event streams. These requests wait on purpose, so their
durations are measured only if they are refused."""


class RequestTiming:
    """Records each request's duration by route and status; skips what waited on purpose."""

    def __init__(self, app: Any, metrics: ProcessMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request to the application, and records the request's duration."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status: int | None = None

        async def note(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, note)
        finally:
            route = getattr(scope.get("route"), "path", "unknown")
            # A long poll that ends without an answer was cancelled, for example by a shutdown.
            if (status or 0) >= 400 or not route.endswith(HELD):
                held = scope.get("state", {}).get("held", 0.0)
                seconds = time.perf_counter() - started - held
                self._metrics.requests.labels(route, str(status or 500)).observe(seconds)
