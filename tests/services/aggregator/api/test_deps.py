"""What each role may do, on every route of the application."""

import re
from typing import Any

import pytest

from rampart_fl.shared.runtime.tokens import mint, token_hash
from tests.services.aggregator.api.conftest import RUN, Api, slug

pytestmark = pytest.mark.anyio
PUBLIC = {"/healthz", "/readyz", "/metrics"}
PARTS = {
    "run": "test-1",
    "round": "0",
    "kind": "update",
    "client_id": "ada",
    "name": "global",
    "join_hash": "0" * 64,
}
"""A value of each parameter in a path."""


def routes(api: Api) -> list[tuple[str, str]]:
    """(method, path) of every route that needs a token."""
    result = [
        (method.upper(), re.sub(r"\{(\w+)\}", lambda part: PARTS[part[1]], path))
        for path, methods in api.app.openapi()["paths"].items()
        for method in methods
        if path not in PUBLIC
    ]
    assert len(result) >= 30
    return result


@pytest.fixture
async def viewer(api: Api) -> str:
    """The token of a viewer."""
    await api.live_run.join("ada")
    return await api.add("vera")


async def test_a_viewer_reads_all_that_an_operator_reads(api: Api, viewer: str) -> None:
    operator = await api.add("bob", "operator")
    api.runtime.hub.close()  # Streams of events end at once.
    read = 0
    for method, path in routes(api):
        if method != "GET" or path == "/v1/whoami":
            continue
        expected = await api.ask(method, path)
        for token in (operator, viewer):
            answer = await api.ask(method, path, token)
            assert (answer.status_code, answer.content) == (
                expected.status_code,
                expected.content,
            ), path
        read += expected.status_code == 200
    assert read >= 9


async def test_a_viewer_changes_nothing(api: Api, viewer: str) -> None:
    before = await api.live_run.dump()
    slugs = []
    for method, path in routes(api):
        if method == "GET":
            continue
        answer = await api.ask(method, path, viewer, json={"token_hash": "0" * 64})
        # The other routes are for clients, and for holders of a join token.
        slugs.append(slug(answer))
        assert slugs[-1] in {"read-only", "forbidden", "unauthorized"}, (method, path)
        assert await api.live_run.dump() == before, (method, path)
    assert slugs.count("read-only") >= 15


async def test_client_tokens_are_refused_on_operator_routes(api: Api) -> None:
    (join,) = (await api.ask("POST", "/v1/join-tokens", json={})).json()["tokens"]
    first, token = mint(), mint()
    body = {"token_hash": token_hash(first), "client_id": "ada"}
    assert (await api.ask("POST", "/v1/clients", join, json=body)).status_code == 201
    before = await api.live_run.stores.audit.end()
    change = {"token_hash": token_hash(token)}
    assert (await api.ask("PUT", "/v1/clients/ada/token", first, json=change)).status_code == 200
    assert await api.live_run.stores.audit.end() == before, "its own token is its own affair"
    for method, path in [
        ("GET", "/v1/whoami"),
        ("GET", "/v1/operators"),
        ("POST", "/v1/operators"),
        ("DELETE", "/v1/operators/vera"),
        ("GET", "/v1/audit"),
        ("DELETE", f"/v1/join-tokens/{'0' * 64}"),
    ]:
        answer = await api.ask(method, path, token)
        assert (answer.status_code, slug(answer)) == (403, "forbidden"), path


async def test_audit_log_names_the_operator_of_each_act(api: Api) -> None:
    await api.live_run.join("ada")
    operator = await api.add("bob", "operator")
    since, _ = await api.live_run.stores.audit.end()
    joins = await api.ask("POST", "/v1/join-tokens", operator, json={"reason": "a new site"})
    assert joins.status_code == 200
    acts: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", f"{RUN}/pause", {}),
        ("POST", f"{RUN}/resume", {"json": {"reason": "all is well"}}),
        ("POST", f"{RUN}/mode", {"json": {"mode": "observe"}}),
        ("POST", f"{RUN}/clients/ada/evict", {"json": {"reason": "odd"}}),
        ("POST", f"{RUN}/clients/ada/reinstate", {"json": {}}),
        ("PUT", "/v1/clients/ada/token", {"json": {"token_hash": "1" * 64}}),
        ("DELETE", "/v1/clients/ada/token?reason=a%20leak", {}),
        ("POST", "/v1/operators", {"json": {"name": "carl", "role": "viewer"}}),
        ("DELETE", "/v1/operators/carl", {"params": {"reason": "left"}}),
        ("POST", f"{RUN}/stop", {}),
    ]
    for method, path, options in acts:
        answer = await api.ask(method, path, operator, **options)
        assert answer.is_success, answer.text
    entries = (await api.ask("GET", "/v1/audit", params={"since": since})).json()
    assert {entry["actor"] for entry in entries} == {"bob"}
    unsaid = "operator's decision"
    assert [(entry["act"], entry["target"], entry["reason"]) for entry in entries] == [
        ("make-join-tokens", "", "a new site"),
        ("pause", "test-1", unsaid),
        ("resume", "test-1", "all is well"),
        ("mode", "test-1", unsaid),
        ("evict", "ada", "odd"),
        ("reinstate", "ada", unsaid),
        ("replace-token", "ada", unsaid),
        ("revoke-token", "ada", "a leak"),
        ("add-operator", "carl", unsaid),
        ("revoke-operator", "carl", "left"),
        ("stop", "test-1", unsaid),
    ]
