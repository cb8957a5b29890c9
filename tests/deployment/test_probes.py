"""Probes get the right answers while Redis is unavailable."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from rampart_fl.services.aggregator.api.app import create_app
from rampart_fl.services.aggregator.api.routes import operations
from rampart_fl.services.aggregator.api.runtime import Runtime
from rampart_fl.services.aggregator.settings import Settings

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["all", "api", "worker"])
async def http(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[httpx.AsyncClient]:
    """An HTTP client of a process, for each role; the process cannot reach its Redis."""
    settings = Settings.model_validate(
        {
            "role": request.param,
            "operator_token": "s" * 32,
            "redis_url": "redis://127.0.0.1:1/0",
            "blobs": str(tmp_path),
        }
    )
    runtime = Runtime(settings)
    monkeypatch.setattr(operations, "PATIENCE", 0.05)
    transport = httpx.ASGITransport(create_app(runtime))
    async with httpx.AsyncClient(transport=transport, base_url="http://aggregator") as client:
        yield client
    await runtime.close()


async def test_a_process_without_redis_is_alive(http: httpx.AsyncClient) -> None:
    answer = await http.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "alive"})


async def test_a_process_without_redis_is_not_ready(http: httpx.AsyncClient) -> None:
    answer = await http.get("/readyz")
    assert answer.status_code == 503
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == "urn:rampart:unavailable"
    assert "Redis" in answer.json()["detail"]


async def test_a_process_without_redis_still_exports_metrics(http: httpx.AsyncClient) -> None:
    answer = await http.get("/metrics")
    assert answer.status_code == 200
    assert "rampart_redis_up 0.0" in answer.text
