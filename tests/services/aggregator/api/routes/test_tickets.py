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


@pytest.mark.parametrize("shortened", [True, False])
async def test_a_client_that_says_that_it_is_away_is_offline(
    api: Api, live_run: Any, shortened: bool
) -> None:
    """Its request is answered, but only requests that do not say `away` bring it online."""
    tokens = {}
    for name in ("ada", "bob", "cleo"):
        await live_run.join(name)
        tokens[name] = mint()
        change = {"token_hash": token_hash(tokens[name])}
        assert (await api.ask("PUT", f"/v1/clients/{name}/token", json=change)).status_code == 200
    sent = {"ada": {"away": "true"}, "bob": {"away": "false"}, "cleo": {}}
    transport = httpx.ASGITransport(api.served if shortened else api.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        for name, params in sent.items():
            bearer = {"Authorization": f"Bearer {tokens[name]}"}
            answered = await client.get("/v1/ticket", params=params, headers=bearer)
            assert answered.status_code == 200, answered.text
    flushing = asyncio.create_task(api.runtime.hub.run())
    while (await live_run.stores.clients.facts(["cleo"]))["cleo"].seen is None:
        await asyncio.sleep(0.01)
    flushing.cancel()
    shown = (await api.ask("GET", "/v1/clients")).json()
    online = {one["client_id"]: one["online"] for one in shown}
    assert online == {"ada": False, "bob": True, "cleo": True}


async def test_an_expired_token_is_refused_even_if_the_client_is_away(
    api: Api, live_run: Any
) -> None:
    await live_run.join("ada")
    token = mint()
    await live_run.stores.clients.change_token("ada", token_hash(token), 1.0, BY)
    refused = await api.ask("GET", "/v1/ticket?away=true", token)
    assert (refused.status_code, "has expired" in refused.text) == (401, True)


async def test_the_api_describes_the_parameter_away(api: Api) -> None:
    parameters = api.app.openapi()["paths"]["/v1/ticket"]["get"]["parameters"]
    (away,) = [one for one in parameters if one["name"] == "away"]
    assert (away["in"], away["required"]) == ("query", False)
    assert away["schema"]["type"] == "boolean"
    assert "counts as offline" in away["description"]
