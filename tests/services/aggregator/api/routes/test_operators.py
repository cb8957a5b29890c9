"""Tests of the routes for operators: add, list and revoke them, and what their tokens permit."""

import json
import time
from typing import Any
from urllib.parse import quote

import pytest

from rampart_fl.shared.protocol.reasons import NO_REASON
from rampart_fl.shared.runtime.tokens import mint, token_hash
from tests.services.aggregator.api.conftest import RUN, Api, slug

pytestmark = pytest.mark.anyio


async def refused(api: Api, token: str, path: str = "/v1/whoami") -> tuple[int, str]:
    answer = await api.ask("GET", path, token)
    return answer.status_code, slug(answer)


async def test_whoami_and_operator_list_show_roles_but_no_tokens(api: Api) -> None:
    assert (await api.ask("GET", "/v1/whoami")).json() == {"name": "owner", "role": "operator"}
    viewer, operator = await api.add("vera"), await api.add("bob", "operator")
    assert (await api.ask("GET", "/v1/whoami", viewer)).json() == {"name": "vera", "role": "viewer"}
    assert (await api.ask("GET", "/v1/whoami", operator)).json()["role"] == "operator"
    listed = (await api.ask("GET", "/v1/operators", viewer)).json()
    assert [(one["name"], one["role"], one["created_by"]) for one in listed] == [
        ("bob", "operator", "owner"),
        ("vera", "viewer", "owner"),
    ]
    text = str(listed)
    for secret in (viewer, operator):
        assert secret not in text and token_hash(secret) not in text


async def test_operator_token_expires_after_its_lifetime(api: Api) -> None:
    token = await api.add("vera", lifetime_seconds=3600)
    assert (await api.ask("GET", "/v1/whoami", token)).status_code == 200
    keys = api.live_run.stores.operators.keys
    known = await api.live_run.stores.redis.client.hget(keys.operators, "vera")
    (listed,) = (await api.ask("GET", "/v1/operators")).json()
    assert listed["expires_at"] == pytest.approx(listed["created_at"] + 3600)
    past = known.replace(f'"expires_at": {listed["expires_at"]}', '"expires_at": 1.0')
    await api.live_run.stores.redis.client.hset(keys.operators, "vera", past)
    for path in ("/v1/whoami", f"{RUN}/experiment", "/v1/ticket", "/v1/audit"):
        assert await refused(api, token, path) == (401, "operator-expired"), path
    await api.add("vera")
    assert await refused(api, token) == (401, "operator-revoked"), "the name has another token"


async def test_revoked_operator_token_is_rejected_immediately_in_every_process(api: Api) -> None:
    token, other = await api.add("bob", "operator"), await api.add("carl", "operator")
    assert (await api.ask("GET", "/v1/whoami", token)).status_code == 200
    # Another process revokes the token.
    await api.live_run.stores.operators.revoke("bob", await attribution(api))
    for path in ("/v1/whoami", f"{RUN}/experiment", "/v1/ticket", "/v1/clients"):
        assert await refused(api, token, path) == (401, "operator-revoked"), path
    before = await api.live_run.dump()
    answer = await api.ask("POST", f"{RUN}/pause", token)
    assert (answer.status_code, slug(answer)) == (401, "operator-revoked")
    assert await api.live_run.dump() == before
    assert (await api.ask("GET", "/v1/whoami", other)).status_code == 200


async def attribution(api: Api) -> Any:
    actor = await api.runtime.operators.of(api.owner)
    assert actor is not None
    return actor.because("a test")


async def test_unknown_tokens_all_get_the_same_error(api: Api) -> None:
    await api.ask("DELETE", "/v1/operators/bob")
    token = await api.add("bob")
    await api.ask("DELETE", "/v1/operators/bob")
    errors = []
    similar = token[:-1] + ("A" if token[-1] != "A" else "B")
    for unknown in (mint(), similar, token_hash(token), "wrong", "x" * 600, "two words"):
        answer = await api.ask("GET", "/v1/whoami", unknown)
        errors.append((answer.status_code, answer.json()["type"], answer.json()["detail"]))
    assert set(errors) == {(401, "urn:rampart:unauthorized", "unknown token")}
    for method, path in (("POST", "/v1/clients"), ("GET", "/v1/ticket"), ("GET", f"{RUN}/events")):
        answer = await api.ask(method, path, "wrong", json={"token_hash": token_hash(mint())})
        assert (answer.status_code, answer.json()["detail"]) == (401, "unknown token"), path


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic YWRhOnNlY3JldA==", "wrong"])
async def test_a_request_without_a_bearer_token_is_told_to_send_one(api: Api, header: str) -> None:
    answer = await api.ask("GET", "/v1/whoami", headers={"Authorization": header})
    needed = "an Authorization header with a bearer token is needed"
    assert (answer.status_code, answer.json()["detail"]) == (401, needed)


async def test_the_owner_can_be_neither_added_nor_revoked(api: Api) -> None:
    body = {"name": "owner", "role": "operator"}
    answer = await api.ask("POST", "/v1/operators", json=body)
    assert (answer.status_code, slug(answer)) == (409, "conflict")
    operator = await api.add("bob", "operator")
    answer = await api.ask("DELETE", "/v1/operators/owner", operator)
    assert (answer.status_code, slug(answer)) == (403, "forbidden")
    assert "RAMPART_OPERATOR_TOKEN" in answer.json()["detail"]
    assert (await api.ask("GET", "/v1/whoami")).status_code == 200


async def test_name_of_an_active_operator_cannot_be_reused(api: Api) -> None:
    token = await api.add("bob")
    answer = await api.ask("POST", "/v1/operators", json={"name": "bob", "role": "operator"})
    assert (answer.status_code, slug(answer)) == (409, "conflict")
    assert (await api.ask("GET", "/v1/whoami", token)).json()["role"] == "viewer"
    assert (await api.ask("DELETE", "/v1/operators/nobody")).status_code == 404
    for _ in range(2):
        assert (await api.ask("DELETE", "/v1/operators/bob")).status_code == 204


async def test_a_join_token_can_be_revoked_until_it_is_used(api: Api) -> None:
    first, second = (await api.ask("POST", "/v1/join-tokens", json={"count": 2})).json()["tokens"]
    body = {"token_hash": token_hash(mint())}
    for _ in range(2):  # The answer to the first request may have been lost.
        assert (await api.ask("DELETE", f"/v1/join-tokens/{token_hash(first)}")).status_code == 204
    assert (await api.ask("DELETE", f"/v1/join-tokens/{'0' * 64}")).status_code == 404
    answer = await api.ask("POST", "/v1/clients", first, json=body)
    assert (answer.status_code, answer.json()["detail"]) == (401, "join token revoked")
    assert (await api.ask("POST", "/v1/clients", second, json=body)).status_code == 201
    answer = await api.ask("DELETE", f"/v1/join-tokens/{token_hash(second)}")
    assert (answer.status_code, slug(answer)) == (409, "conflict")


@pytest.mark.parametrize(
    ("path", "body", "others"),
    [
        ("/v1/join-tokens", {"count": 2}, [{"labels": {"site": "eu"}}, {}]),
        ("/v1/operators", {"name": "vera", "role": "viewer"}, [{"name": "bob"}, {"name": "zoe"}]),
    ],
)
async def test_repeated_request_with_a_key_makes_the_same_tokens(
    api: Api, path: str, body: dict[str, Any], others: list[dict[str, Any]]
) -> None:
    async def tokens(key: str, **changes: Any) -> list[str]:
        answer = await api.ask("POST", path, json={**body, "key": key, **changes})
        assert answer.is_success
        made = answer.json()
        return made["tokens"] if "tokens" in made else [made["token"]]

    key, before = mint(), len((await api.ask("GET", "/v1/audit")).json())
    first = await tokens(key)
    assert await tokens(key) == first
    different = [*first, *await tokens(key, **others[0]), *await tokens(mint(), **others[1])]
    assert len(set(different)) == 3 * len(first)
    assert len((await api.ask("GET", "/v1/audit")).json()) == before + 3
    answer = await api.ask("POST", path, json={**body, "key": "k" * 42})
    assert (answer.status_code, slug(answer)) == (422, "invalid-request")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/join-tokens", {"count": 2, "lifetime": 60}),
        ("/v1/operators", {"name": "vera", "role": "viewer", "lifetime_seconds": 3600}),
        ("/v1/operators", {"name": "vera", "role": "viewer"}),
    ],
)
async def test_repeated_request_with_a_key_has_the_first_response(
    api: Api, path: str, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tokens expire when the first response says, even if another operator repeats it."""
    body, bob, now = {**body, "key": mint()}, await api.add("bob", "operator"), time.time()
    first = (await api.ask("POST", path, json=body)).json()
    monkeypatch.setattr(time, "time", lambda: now + 30)
    assert (await api.ask("POST", path, bob, json=body)).json() == first
    if "tokens" in first:
        joins = api.live_run.stores.join_tokens
        known = await joins.redis.ask("hget", joins.keys.joins, token_hash(first["tokens"][0]))
        assert json.loads(known)["expires_at"] == first["expires_at"]


async def test_repeated_request_does_not_revive_revoked_or_used_tokens(api: Api) -> None:
    joins = {"count": 2, "key": mint()}
    operator = {"name": "vera", "role": "viewer", "key": mint()}
    first, _ = (await api.ask("POST", "/v1/join-tokens", json=joins)).json()["tokens"]
    assert (await api.ask("POST", "/v1/operators", json=operator)).status_code == 201
    assert (await api.ask("DELETE", f"/v1/join-tokens/{token_hash(first)}")).status_code == 204
    assert (await api.ask("DELETE", "/v1/operators/vera")).status_code == 204
    for path, body in (("/v1/join-tokens", joins), ("/v1/operators", operator)):
        answer = await api.ask("POST", path, json=body)
        assert (answer.status_code, slug(answer)) == (409, "conflict")
        assert "use a new key" in answer.json()["detail"]
    used = {"count": 1, "key": mint()}
    (token,) = (await api.ask("POST", "/v1/join-tokens", json=used)).json()["tokens"]
    body = {"token_hash": token_hash(mint())}
    assert (await api.ask("POST", "/v1/clients", token, json=body)).status_code == 201
    assert (await api.ask("POST", "/v1/join-tokens", json=used)).status_code == 409


HOSTILE = ["a\nb", "a\0b", "\x1b[2J", "\x9b2J", "\u202egnorw", "\u2028", "x" * 501, "x" * 2**20]
NAMES = {
    "newline": "a\n",
    "path": "../a",
    "upper": "Bob",
    "long": "x" * 65,
    "reversed": "\u202ebob",
    "empty": "",
    "blank": " ",
    "two-words": "a b",
    "letters": "é",
    "nul": "a\0",
    "option": "-a",
    "endless": "x" * 2**20,
}


@pytest.mark.parametrize("reason", HOSTILE, ids=lambda text: ascii(text)[:12])
async def test_a_hostile_reason_is_refused(api: Api, reason: str) -> None:
    await api.live_run.join("ada")
    before = await api.live_run.dump()
    expected = (413, "too-large") if len(reason) > 65_536 else (422, "invalid-request")
    for path, body in [
        (f"{RUN}/pause", {}),
        (f"{RUN}/mode", {"mode": "observe"}),
        (f"{RUN}/clients/ada/evict", {}),
        ("/v1/join-tokens", {}),
        ("/v1/operators", {"name": "vera", "role": "viewer"}),
    ]:
        answer = await api.ask("POST", path, json={**body, "reason": reason})
        assert (answer.status_code, slug(answer)) == expected, path
        assert len(answer.content) < 5000
    for path in ("/v1/clients/ada/token", "/v1/operators/vera", f"/v1/join-tokens/{'0' * 64}"):
        answer = await api.ask("DELETE", f"{path}?reason={quote(reason[:60_000])}")
        assert (answer.status_code, slug(answer)) == (422, "invalid-request"), path
    assert await api.live_run.dump() == before


@pytest.mark.parametrize("reason", [" ", "   ", "\u00a0\u3000"], ids=ascii)
async def test_a_reason_of_only_white_space_is_refused(api: Api, reason: str) -> None:
    await api.live_run.join("ada")
    before = await api.live_run.dump()
    for method, path in [
        ("POST", f"{RUN}/pause"),
        ("POST", f"{RUN}/clients/ada/evict"),
        ("DELETE", "/v1/clients/ada/token"),
        ("DELETE", RUN),
    ]:
        where, key = ("body", "json") if method == "POST" else ("query", "params")
        options: dict[str, Any] = {key: {"reason": reason}}
        answer = await api.ask(method, path, **options)
        assert (answer.status_code, slug(answer)) == (422, "invalid-request"), path
        assert answer.json()["detail"] == (
            f"{where}.reason: the reason is only white space ({len(reason)} characters); "
            "write a reason, or leave it out"
        )
    assert await api.live_run.dump() == before


async def test_an_empty_or_absent_reason_is_accepted(api: Api) -> None:
    await api.live_run.join("ada", "bob")
    for body in ({}, {"reason": ""}):
        assert (await api.ask("POST", f"{RUN}/pause", json=body)).status_code == 200
        assert (await api.ask("POST", f"{RUN}/resume", json=body)).status_code == 200
    assert (await api.ask("DELETE", "/v1/clients/ada/token?reason=")).status_code == 204
    assert (await api.ask("DELETE", "/v1/clients/bob/token")).status_code == 204
    reasons = [entry["reason"] for entry in (await api.ask("GET", "/v1/audit")).json()]
    assert reasons[-6:] == [NO_REASON, NO_REASON, "", "", "", NO_REASON]


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
async def test_a_hostile_name_is_refused(api: Api, name: str) -> None:
    before = await api.live_run.dump()
    answer = await api.ask("POST", "/v1/operators", json={"name": name, "role": "viewer"})
    expected = (413, "too-large") if len(name) > 65_536 else (422, "invalid-request")
    assert (answer.status_code, slug(answer)) == expected
    answer = await api.ask("DELETE", f"/v1/operators/{quote(name[:60_000], safe='')}")
    assert slug(answer) in {"invalid-request", "not-found", "method-not-allowed"}
    assert await api.live_run.dump() == before


@pytest.mark.parametrize(
    "body",
    [
        {"name": "vera"},
        {"name": "vera", "role": "owner"},
        {"name": "vera", "role": "viewer", "lifetime_seconds": 0},
        {"name": "vera", "role": "viewer", "lifetime_seconds": 10**10},
        {"name": "vera", "role": "viewer", "token": "x" * 43},
    ],
    ids=str,
)
async def test_malformed_operator_request_is_refused(api: Api, body: dict[str, Any]) -> None:
    answer = await api.ask("POST", "/v1/operators", json=body)
    assert (answer.status_code, slug(answer)) == (422, "invalid-request")


async def test_the_openapi_document_has_examples(api: Api) -> None:
    document = api.app.openapi()
    schemas = document["components"]["schemas"]
    for name in ("WhoAmI", "OperatorRequest", "OperatorToken", "OperatorInfo", "AuditEntry"):
        fields = schemas[name]["properties"]
        bare = [field for field, about in fields.items() if "examples" not in about]
        assert not set(bare) - {"number", "hash", "previous"}, name
    tagged = {
        (method, path)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if operation["tags"] == ["operators"]
    }
    assert len(tagged) == 5
    for method, path in tagged:
        for parameter in document["paths"][path][method].get("parameters", []):
            assert parameter["schema"].get("examples") or parameter.get("examples"), parameter
