"""Requests are timed by route and status; deliberate waits do not count."""

import asyncio
import contextlib
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request, Response

from rampart_fl.services.aggregator.api.request_timing import RequestTiming
from rampart_fl.services.aggregator.metrics import ProcessMetrics

pytestmark = pytest.mark.anyio


def seconds(metrics: ProcessMetrics, route: str, status: int = 200) -> float | None:
    """Seconds observed of a route's requests with this status; None if there were none."""
    labels = {"route": route, "status": str(status)}
    return metrics.registry.get_sample_value("rampart_request_seconds_sum", labels)


async def test_request_time_excludes_deliberate_waits() -> None:
    app, metrics = FastAPI(), ProcessMetrics()

    @app.put("/update/{held}")
    async def update(held: float, request: Request) -> Response:
        request.state.held = held
        return Response()

    @app.get("/v1/ticket")
    async def ticket() -> Response:
        return Response()

    app.add_middleware(RequestTiming, metrics=metrics)
    transport: Any = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        for held in (0.0, 1000.0):
            assert (await client.put(f"/update/{held}")).status_code == 200
        await client.get("/v1/ticket")
    result = seconds(metrics, "/update/{held}")
    assert result is not None
    assert (
        result < 0
    )  # The second request claims to have waited a thousand seconds that did not pass.
    assert seconds(metrics, "/v1/ticket") is None


@pytest.mark.parametrize(
    ("status", "counted"), [(204, None), (401, "401"), (503, "503"), (None, None)]
)
async def test_only_refused_long_polls_are_counted(status: int | None, counted: str | None) -> None:
    """A client whose token is not valid may send nothing but ticket requests."""
    app, metrics = FastAPI(), ProcessMetrics()

    @app.get("/v1/ticket")
    async def ticket() -> Response:
        if status is None:
            raise asyncio.CancelledError
        return Response(status_code=status)

    app.add_middleware(RequestTiming, metrics=metrics)
    transport: Any = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        with contextlib.suppress(asyncio.CancelledError):
            await client.get("/v1/ticket")
    found = [
        sample.labels["status"]
        for metric in metrics.registry.collect()
        for sample in metric.samples
        if sample.name == "rampart_request_seconds_count"
    ]
    assert found == ([counted] if counted else [])
