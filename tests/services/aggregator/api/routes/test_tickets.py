"""Requests that wait for a client's next ticket."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from rampart_fl.shared.runtime.tokens import mint, token_hash
from tests.services.aggregator.api.conftest import Api
from tests.services.aggregator.api.routes.test_members import BY, answer, enrol, ticket

pytestmark = pytest.mark.anyio


@pytest.fixture
async def listening(api: Api) -> AsyncIterator[None]:
    """The process's hub reads events."""
    task = asyncio.create_task(api.runtime.hub.run())
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def poll(api: Api, token: str) -> "asyncio.Task[httpx.Response]":
    """A request that waits up to 30 seconds for a ticket that differs from the current one."""
    headers = {"If-None-Match": f'"{(await ticket(api, token)).etag}"', "Prefer": "wait=30"}
    return asyncio.create_task(api.ask("GET", "/v1/ticket", token, headers=headers))


@pytest.mark.usefixtures("listening")
@pytest.mark.parametrize("renewed", [None, mint()], ids=["revoked", "replaced"])
async def test_a_token_that_is_not_valid_any_more_gets_no_further_ticket(
    api: Api, live_run: Any, renewed: str | None
) -> None:
    """The token of `ada` is revoked or replaced, and `bob` keeps its token."""
    ada, bob = await enrol(api, "ada"), await enrol(api, "bob")
    for token in (ada, bob):
        assert (await answer(api, token))[0] == 200
    first, second = await poll(api, ada), await poll(api, bob)
    while not (api.runtime.hub.count("ada") and api.runtime.hub.count("bob")):
        await asyncio.sleep(0.001)
    hash_ = "" if renewed is None else token_hash(renewed)
    # Another process changes the token.
    await live_run.stores.clients.change_token("ada", hash_, 2e9, BY)
    async with asyncio.timeout(10):
        assert (await first).status_code == 204, "the change ends the wait"
    await live_run.open(0, ["ada", "bob"])
    assert (await second).json()["kind"] == "train"
    assert (await api.ask("GET", "/v1/ticket", ada)).status_code == 401
    if renewed is not None:
        assert (await ticket(api, renewed)).kind == "train"
