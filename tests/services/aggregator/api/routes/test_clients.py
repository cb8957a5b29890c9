"""Tests of what operators see of clients: token expiry, software, and pages of the list."""

import asyncio

import pytest

from rampart_fl.shared.runtime.tokens import mint, token_hash
from tests.services.aggregator.api.conftest import Api, slug
from tests.services.aggregator.api.routes.test_members import BY, enrol

pytestmark = pytest.mark.anyio


async def test_token_expiry_is_shown_until_the_token_is_revoked(api: Api) -> None:
    await api.live_run.join("ada")
    record = await api.live_run.stores.clients.record("ada")
    assert record is not None
    shown = (await api.ask("GET", "/v1/clients/ada")).json()
    assert shown["token_expires_at"] == record.expires_at
    assert (await api.ask("DELETE", "/v1/clients/ada/token")).status_code == 204
    assert (await api.ask("GET", "/v1/clients/ada")).json()["token_expires_at"] is None


async def test_client_cannot_replace_a_token_that_is_revoked_during_its_request(api: Api) -> None:
    token = await enrol(api, "ada")
    api.runtime.hub.listening = True  # The process caches tokens, and has read no event yet.
    assert (await api.ask("POST", "/v1/heartbeat", token)).status_code == 204
    await api.live_run.stores.clients.change_token("ada", "", 0, BY)
    own = {"token_hash": token_hash(mint())}
    refused = await api.ask("PUT", "/v1/clients/ada/token", token, json=own)
    assert (refused.status_code, slug(refused)) == (401, "unauthorized")
    assert (await api.ask("GET", "/v1/clients/ada")).json()["token_expires_at"] is None


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ("rampart-fl/0.2 (linux) httpx/1", "rampart-fl/0.2"),
        ("<b>&amp;/1", "<b>&amp;/1"),
        ("x" * 65, ""),
        ("", ""),
        ("caf\u00e9/1", ""),
    ],
)
async def test_client_software_is_shown_from_its_last_user_agent(
    api: Api, sent: str, shown: str
) -> None:
    await api.live_run.join("ada")
    api.runtime.hub.saw("ada", "older/1")
    token = mint()
    change = {"token_hash": token_hash(token)}
    assert (await api.ask("PUT", "/v1/clients/ada/token", json=change)).status_code == 200
    named = {"User-Agent": sent.encode("latin-1")}
    answer = await api.ask("POST", "/v1/heartbeat", token, headers=named)
    assert answer.status_code == 204
    flushing = asyncio.create_task(api.runtime.hub.run())
    while (await api.live_run.stores.clients.facts(["ada"]))["ada"].seen is None:
        await asyncio.sleep(0.01)
    flushing.cancel()
    for path in ("/v1/clients/ada", "/v1/clients"):
        body = (await api.ask("GET", path)).json()
        assert (body if isinstance(body, dict) else body[0])["software"] == shown


async def test_clients_are_paged_by_id(api: Api) -> None:
    await api.live_run.join("cleo", "ada", "dan", "bob")
    pages = []
    for query in (
        {"limit": 3},
        {"limit": 3, "after": "cleo"},
        {"after": "bobby"},
        {"after": "dan"},
    ):
        answer = await api.ask("GET", "/v1/clients", params=query)
        pages.append([one["client_id"] for one in answer.json()])
    assert pages == [["ada", "bob", "cleo"], ["dan"], ["cleo", "dan"], []]
