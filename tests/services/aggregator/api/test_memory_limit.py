"""What operators can still do while Redis is at its memory limit."""

from collections.abc import AsyncIterator

import pytest

from tests.services.aggregator.api.conftest import RUN, Api, slug

pytestmark = pytest.mark.anyio


@pytest.fixture
async def full(api: Api) -> AsyncIterator[Api]:
    """An api process whose Redis has reached `maxmemory`."""
    await api.live_run.join("ada", "bob")
    redis = api.runtime.stores.redis.client
    await redis.config_set("maxmemory", 1)
    try:
        yield api
    finally:
        await redis.config_set("maxmemory", 0)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/runs",
        RUN,
        f"{RUN}/rounds/current",
        f"{RUN}/members",
        f"{RUN}/proposals",
        "/v1/clients",
        "/v1/audit",
        "/v1/health",
    ],
)
async def test_operators_can_read_everything_while_redis_has_no_memory(
    full: Api, path: str
) -> None:
    answer = await full.ask("GET", path)
    assert answer.status_code == 200, answer.text


async def test_changes_are_refused_while_redis_has_no_memory(full: Api) -> None:
    answer = await full.ask("DELETE", "/v1/clients/ada/token")
    assert (answer.status_code, slug(answer)) == (503, "unavailable")
    assert "OOM" in answer.text
