"""Tests of the route that tells operators whether the federation's parts work."""

import shutil
import time

import pytest

from tests.services.aggregator.api.conftest import Api

pytestmark = pytest.mark.anyio


async def test_health_names_the_worker_that_holds_the_lease(api: Api) -> None:
    body = (await api.ask("GET", "/v1/health")).json()
    assert body == {"redis": "", "blobs": "", "worker": "worker"}
    await api.runtime.stores.lease.release("worker", api.live_run.fence)
    assert (await api.ask("GET", "/v1/health")).json()["worker"] is None
    assert await api.runtime.stores.lease.acquire("second", 60, time.time()) is not None
    viewer = await api.add("vera")
    assert (await api.ask("GET", "/v1/health", viewer)).json()["worker"] == "second"


async def test_health_reports_problems_of_redis_and_blobs(api: Api) -> None:
    api.runtime.warnings = ["Redis forgets"]
    shutil.rmtree(api.runtime.blobs.folder)
    body = (await api.ask("GET", "/v1/health")).json()
    assert body["redis"] == "Redis forgets"
    assert body["blobs"]
