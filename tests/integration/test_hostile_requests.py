"""Hostile requests to a federation: each gets its own problem type, and nobody else is affected."""

import contextlib
import json
import select
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rampart_fl.services.aggregator.api.routes.run_status import STREAMS_EACH
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.runtime.tokens import mint, token_hash

MARGIN = 24 << 20
"""Bytes by which the server's memory may grow in addition to two updates."""
UPDATE = "PUT /v1/runs/small-1/rounds/1/update"
MEDIA = f"Content-Type: {wire.MEDIA_TYPE}"
JSON = {"Content-Type": "application/json"}


def put(path: str, **claims: Any) -> Callable[[Any], Any]:
    """An upload by Mallory to a path, or with these claims."""
    return lambda siege: siege.put("mallory", siege.update(**claims), path)


def claim(report: str) -> Callable[[Any], Any]:
    """An upload with this report."""
    return lambda siege: siege.put(
        "mallory", wire.encode(siege.spec, siege.zeros_D, {"report": report})
    )


def ask(method: str, path: str, who: str = "mallory", **options: Any) -> Callable[[Any], Any]:
    """A request with a client's token, the operator's, or none."""

    def send(siege: Any) -> Any:
        known = {**siege.tokens, "operator": siege.operator, "nobody": None}
        token = known.get(who, who)
        return siege.call(method, path, token, **options)

    return send


def raw(line: str, *headers: str, body: bytes = b"", who: str | None = "mallory") -> Any:
    """A request in bytes."""
    return lambda siege: siege.raw(siege.head(line, who, *headers) + body)


def join(prepare: Callable[[Any], str], **body: Any) -> Callable[[Any], Any]:
    """An attempt to join with the token that `prepare` gives."""
    request = {"token_hash": token_hash(mint()), **body}
    return lambda siege: siege.call("POST", "/v1/clients", prepare(siege), json=request)


def used(siege: Any) -> str:
    """A join token with which somebody has joined already."""
    (token,) = siege.local.operator.mint_unbound(1).tokens
    siege.call("POST", "/v1/clients", token, json={"token_hash": token_hash(mint())})
    return str(token)


def expired(siege: Any) -> str:
    """A join token that has expired."""
    (token,) = siege.local.operator.mint_unbound(1, lifetime=0.001).tokens
    time.sleep(0.01)
    return str(token)


def fresh(siege: Any) -> str:
    """A valid join token."""
    return str(siege.local.operator.mint_unbound(1).tokens[0])


def drip(first: bytes, siege: Any) -> Any:
    """Sends bytes one by one, each in time, for as long as the server accepts them."""
    with siege.connect() as connection:
        connection.sendall(first)
        over = threading.Event()

        def send() -> None:
            with contextlib.suppress(OSError):
                while not over.wait(0.2):
                    connection.sendall(b"x")

        sender = threading.Thread(target=send)
        sender.start()
        try:
            return siege.read(connection)
        finally:
            over.set()
            sender.join()


def slow_upload(siege: Any) -> Any:
    head = siege.head(UPDATE, "mallory", MEDIA, "Content-Length: 1000")
    return drip(head, siege)


def slow_json(siege: Any) -> Any:
    head = siege.head("POST /v1/clients", "mallory", "Content-Length: 1000")
    return drip(head, siege)


def slow_head(siege: Any) -> Any:
    return drip(b"GET /v1/ticket HTTP/1.1\r\nHost: ", siege)


def two_at_once(siege: Any) -> Any:
    """A second upload during the first one; retries if the second one overtook the first."""
    for _ in range(20):
        with siege.connect() as connection:
            connection.sendall(siege.head(UPDATE, "mallory", MEDIA, "Content-Length: 1000"))
            time.sleep(0.05)
            reply = siege.put("mallory", siege.update(float("nan")))
        if reply.status == 429:
            break
    return reply


def many_models(siege: Any) -> Any:
    """More customized models than the limit per minute, even if a new minute begins meanwhile."""
    for _ in range(5):
        reply = siege.customize("mallory")
        if reply.status != 200:
            break
    return reply


def many_rotations(siege: Any) -> Any:
    """More changes of a token than the limit per minute, even if a new minute begins meanwhile."""
    same = {"token_hash": token_hash(siege.tokens["mallory"])}
    for _ in range(41):
        reply = siege.call("PUT", "/v1/clients/mallory/token", siege.tokens["mallory"], json=same)
        if reply.status != 200:
            break
    return reply


def many_polls(siege: Any) -> Any:
    """One more long poll than a client may have; returns the first reply."""
    ticket = siege.call("GET", "/v1/ticket", siege.tokens["mallory"])
    known = f"If-None-Match: {ticket.headers['etag']}"
    with contextlib.ExitStack() as stack:
        polls = [stack.enter_context(siege.connect()) for _ in range(17)]
        for poll in polls:
            poll.sendall(siege.head("GET /v1/ticket", "mallory", known, "Prefer: wait=30"))
        answered, _, _ = select.select(polls, [], [], 20)
        return siege.read(answered[0])


def many_streams(siege: Any) -> Any:
    """One more stream of events than an operator may have; another operator may still have one."""
    with contextlib.ExitStack() as stack:
        for _ in range(STREAMS_EACH):
            stream = stack.enter_context(siege.connect())
            token = f"Authorization: Bearer {siege.operator}"
            stream.sendall(siege.head("GET /v1/runs/small-1/events", None, token))
            assert stream.recv(12) == b"HTTP/1.1 200"
        other = siege.local.operator.add_operator(f"v-{token_hash(mint())[:12]}", "viewer")
        with siege.connect() as stream:
            token = f"Authorization: Bearer {other.token}"
            stream.sendall(siege.head("GET /v1/runs/small-1/events", None, token))
            assert stream.recv(12) == b"HTTP/1.1 200"
        return siege.call("GET", "/v1/runs/small-1/events", siege.operator)


def viewer(method: str, path: str, **options: Any) -> Callable[[Any], Any]:
    """A request with the token of a viewer."""

    def send(siege: Any) -> Any:
        made = siege.local.operator.add_operator(f"v-{token_hash(mint())[:12]}", "viewer")
        return siege.call(method, path, made.token, **options)

    return send


def dismissed(lifetime: float | None) -> Callable[[Any], Any]:
    """A request with the token of an operator that was revoked, or whose lifetime is over."""

    def send(siege: Any) -> Any:
        operator, name = siege.local.operator, f"d-{token_hash(mint())[:12]}"
        token = operator.add_operator(name, "operator", lifetime).token
        if lifetime is None:
            operator.revoke_operator(name)
        else:
            time.sleep(2 * lifetime)  # Until the token has expired.
        return siege.call("GET", "/v1/ticket", token)

    return send


def mint_with(**body: Any) -> Callable[[Any], Any]:
    """An operator's request for join tokens."""
    return ask("POST", "/v1/join-tokens", "operator", json=body)


NINES = "9" * 4300
"""The longest integer that Python parses by default."""
SAMPLES = '{"samples": %s}'
METRIC = '{"samples": 1, "metrics": {"loss": %s}}'
CASES: dict[str, tuple[str, int, Callable[[Any], Any]]] = {
    # Claims.
    "negative-samples": ("invalid-claim", 422, claim(SAMPLES % -3)),
    "no-samples": ("invalid-claim", 422, claim(SAMPLES % 0)),
    "1e12-samples": ("invalid-claim", 422, claim(SAMPLES % 10**12)),
    "nan-samples": ("invalid-claim", 422, claim(SAMPLES % "NaN")),
    "samples-above-the-cap": ("invalid-claim", 422, claim(SAMPLES % 1001)),
    "nan-metric": ("invalid-claim", 422, claim(METRIC % "NaN")),
    "infinite-metric": ("invalid-claim", 422, claim(METRIC % "-Infinity")),
    "huge-metric": ("invalid-claim", 422, claim(METRIC % "1e300")),
    "more-correct-than-tested": (
        "invalid-claim",
        422,
        claim('{"samples": 1, "metrics": {"test_samples": 1, "correct_customized": 1e15}}'),
    ),
    "unknown-claim": ("invalid-claim", 422, claim('{"samples": 1, "weight": 9}')),
    "surrogates": ("invalid-claim", 422, claim('{"samples": 1, "\ud800": 1}')),
    "nested-report": ("invalid-claim", 422, claim("[" * 20_000)),
    "too-many-metrics": (
        "invalid-claim",
        422,
        claim(json.dumps({"samples": 1, "metrics": {f"m{i}": 0 for i in range(65)}})),
    ),
    "metric-name": ("invalid-claim", 422, claim('{"samples": 1, "metrics": {"<b>": 1}}')),
    "no-report": (
        "invalid-claim",
        422,
        lambda siege: siege.put("mallory", wire.encode(siege.spec, siege.zeros_D)),
    ),
    # Rounds and tickets.
    "past-round": ("late", 410, put("/v1/runs/small-1/rounds/0/update")),
    "future-round": ("no-ticket", 409, put("/v1/runs/small-1/rounds/2/update")),
    "probe-unasked": ("no-ticket", 409, put("/v1/runs/small-1/rounds/1/probe")),
    "negative-round": ("invalid-request", 422, put("/v1/runs/small-1/rounds/-1/update")),
    "huge-round": ("invalid-request", 422, put(f"/v1/runs/small-1/rounds/{10**30}/update")),
    "endless-round": ("invalid-request", 422, put(f"/v1/runs/small-1/rounds/{'9' * 5000}/update")),
    "round-in-words": ("invalid-request", 422, put("/v1/runs/small-1/rounds/one/update")),
    "unknown-kind": (
        "invalid-request",
        422,
        lambda siege: siege.put("mallory", b"few", "/v1/runs/small-1/rounds/1/evil"),
    ),
    "other-bytes": ("conflict", 409, lambda siege: siege.put("ada", siege.update(2))),
    "evaluation-unasked": (
        "no-ticket",
        409,
        ask("PUT", "/v1/runs/small-1/rounds/1/evaluation", json={"metrics": {}}),
    ),
    "nan-evaluation": (
        "invalid-request",
        422,
        ask(
            "PUT",
            "/v1/runs/small-1/rounds/1/evaluation",
            content=b'{"metrics": {"a": NaN}}',
            headers=JSON,
        ),
    ),
    "negative-tested": (
        "invalid-claim",
        422,
        ask(
            "PUT", "/v1/runs/small-1/rounds/1/evaluation", json={"metrics": {"test_samples": -199}}
        ),
    ),
    # Tokens and roles.
    "no-token": ("unauthorized", 401, ask("GET", "/v1/ticket", "nobody")),
    "unknown-token": ("unauthorized", 401, ask("GET", "/v1/ticket", mint())),
    "revoked-token": ("unauthorized", 401, ask("GET", "/v1/ticket", "gone")),
    "expired-token": ("unauthorized", 401, ask("GET", "/v1/ticket", "oldie")),
    "long-token": ("unauthorized", 401, ask("GET", "/v1/ticket", "x" * 5000)),
    "basic": ("unauthorized", 401, raw("GET /v1/ticket", "Authorization: Basic eDp5", who=None)),
    "two-tokens": (
        "malformed",
        400,
        raw("GET /v1/ticket", "Authorization: Bearer " + "x" * 40),
    ),
    "operator-as-client": ("forbidden", 403, ask("GET", "/v1/ticket", "operator")),
    "client-evicts": ("forbidden", 403, ask("POST", "/v1/runs/small-1/clients/ada/evict", json={})),
    "client-confirms": (
        "forbidden",
        403,
        ask("POST", "/v1/runs/small-1/clients/ada/confirm", json={}),
    ),
    "client-dismisses": (
        "forbidden",
        403,
        ask("POST", "/v1/runs/small-1/clients/mallory/dismiss", json={}),
    ),
    "client-reads-proposals": ("forbidden", 403, ask("GET", "/v1/runs/small-1/proposals")),
    "client-observes": (
        "forbidden",
        403,
        ask("POST", "/v1/runs/small-1/mode", json={"mode": "observe"}),
    ),
    "client-stops": ("forbidden", 403, ask("POST", "/v1/runs/small-1/stop")),
    "client-mints": ("forbidden", 403, ask("POST", "/v1/join-tokens", json={"count": 9})),
    "client-reads-records": ("forbidden", 403, ask("GET", "/v1/runs/small-1/rounds")),
    "client-reads-the-roster": ("forbidden", 403, ask("GET", "/v1/clients")),
    "client-reads-another": ("forbidden", 403, ask("GET", "/v1/clients/ada")),
    "client-rotates-another": (
        "forbidden",
        403,
        ask("PUT", "/v1/clients/ada/token", json={"token_hash": "0" * 64}),
    ),
    "token-of-another": (
        "conflict",
        409,
        lambda siege: siege.call(
            "PUT",
            "/v1/clients/mallory/token",
            siege.tokens["mallory"],
            json={"token_hash": token_hash(siege.tokens["ada"])},
        ),
    ),
    "evicted": ("evicted", 403, lambda siege: siege.put("eve", siege.update())),
    "join-garbage": ("unauthorized", 401, join(lambda siege: "x" * 43)),
    "join-again": ("unauthorized", 401, join(used)),
    "join-late": ("unauthorized", 401, join(expired)),
    "join-as-ada": ("conflict", 409, join(fresh, client_id="ada")),
    "join-as-path": ("invalid-request", 422, join(fresh, client_id="../ada")),
    "join-with-role": ("invalid-request", 422, join(fresh, role="operator")),
    "viewer-as-client": ("forbidden", 403, viewer("GET", "/v1/ticket")),
    "viewer-evicts": (
        "read-only",
        403,
        viewer("POST", "/v1/runs/small-1/clients/ada/evict", json={}),
    ),
    "viewer-stops": ("read-only", 403, viewer("POST", "/v1/runs/small-1/stop")),
    "viewer-customizes": (
        "read-only",
        403,
        viewer("POST", "/v1/runs/small-1/customize", content=b"x"),
    ),
    "viewer-promotes-itself": (
        "read-only",
        403,
        viewer("POST", "/v1/operators", json={"name": "me", "role": "operator"}),
    ),
    "revoked-operator": ("operator-revoked", 401, dismissed(None)),
    "expired-operator": ("operator-expired", 401, dismissed(0.01)),
    "client-adds-an-operator": (
        "forbidden",
        403,
        ask("POST", "/v1/operators", json={"name": "mallory", "role": "operator"}),
    ),
    "client-reads-the-audit-log": ("forbidden", 403, ask("GET", "/v1/audit")),
    # Paths.
    "dots": ("not-found", 404, raw("GET /v1/runs/small-1/models/..%2f..%2f..%2fetc%2fpasswd")),
    "plain-dots": ("not-found", 404, raw("GET /v1/runs/small-1/models/../../../../etc/passwd")),
    "digest-traversal": (
        "invalid-request",
        422,
        ask("GET", f"/v1/runs/small-1/models/..{'0' * 64}", "operator"),
    ),
    "unknown-digest": (
        "not-found",
        404,
        ask("GET", f"/v1/runs/small-1/models/{'0' * 64}", "operator"),
    ),
    "unnamed-model": ("forbidden", 403, ask("GET", f"/v1/runs/small-1/models/{'0' * 64}")),
    "nul": ("not-found", 404, raw("GET /v1/runs/small-1/models/global%00.txt/")),
    "unknown-path": ("not-found", 404, ask("GET", "/v2/everything")),
    "trailing-slash": ("not-found", 404, ask("GET", "/v1/clients/", "operator")),
    "unknown-method": ("method-not-allowed", 405, ask("DELETE", "/v1/ticket")),
    # JSON.
    "not-json": (
        "malformed",
        400,
        ask("POST", "/v1/clients", content=b'{"token_hash": ', headers=JSON),
    ),
    "json-bomb": (
        "malformed",
        400,
        ask("POST", "/v1/clients", content=b"[" * 60_000, headers=JSON),
    ),
    "not-utf8": (
        "malformed",
        400,
        ask("POST", "/v1/clients", content=b'{"token_hash": "\xff\xfe"}', headers=JSON),
    ),
    "json-list": ("invalid-request", 422, ask("POST", "/v1/clients", json=[1])),
    "big-json": ("too-large", 413, ask("POST", "/v1/clients", json={"x": "y" * 70_000})),
    "json-unsaid": ("unsupported-media", 415, ask("POST", "/v1/clients", content=b"{}")),
    "json-as-a-form": (
        "unsupported-media",
        415,
        ask(
            "POST",
            "/v1/clients",
            content=b"{}",
            headers={"Content-Type": "application/x-www-form-urlencoded"},
        ),
    ),
    # Operators' mistakes.
    "unknown-mode": (
        "invalid-request",
        422,
        ask("POST", "/v1/runs/small-1/mode", "operator", json={"mode": "warn"}),
    ),
    "nothing-proposed": (
        "conflict",
        409,
        ask("POST", "/v1/runs/small-1/clients/ada/confirm", "operator", json={}),
    ),
    "owner-revoked": ("forbidden", 403, ask("DELETE", "/v1/operators/owner", "operator")),
    "reason-with-control-characters": (
        "invalid-request",
        422,
        ask("POST", "/v1/runs/small-1/pause", "operator", json={"reason": "\x1b[2J"}),
    ),
    "reason-with-half-a-pair": (
        "invalid-request",
        422,
        ask(
            "POST",
            "/v1/runs/small-1/pause",
            "operator",
            content=b'{"reason": "\\ud800"}',
            headers=JSON,
        ),
    ),
    "endless-reason": (
        "too-large",
        413,
        ask("POST", "/v1/runs/small-1/pause", "operator", json={"reason": "x" * 2**20}),
    ),
    "long-reason-in-a-query": (
        "invalid-request",
        422,
        ask("DELETE", f"/v1/operators/ada?reason={'x' * 65_000}", "operator"),
    ),
    "endless-since": (
        "invalid-request",
        422,
        ask("GET", f"/v1/runs/small-1/rounds?since={NINES}", "operator"),
    ),
    "endless-cap": ("invalid-request", 422, mint_with(sample_cap=10**20)),
    "infinite-cap": ("invalid-request", 422, mint_with(sample_cap=10**400)),
    "tokens-for-nobody": ("invalid-request", 422, mint_with(client_ids=[])),
    "count-beside-ids": ("invalid-request", 422, mint_with(client_ids=["zoe"], count=2)),
    # HTTP.
    "body-on-get": ("too-large", 413, ask("GET", "/v1/ticket", content=bytes(1 << 20))),
    "content-type": (
        "unsupported-media",
        415,
        lambda siege: siege.put("mallory", b"x", Content_Type="application/x-pickle"),
    ),
    "content-encoding": (
        "unsupported-media",
        415,
        lambda siege: siege.put("mallory", b"x", Content_Encoding="gzip"),
    ),
    "two-encodings": (
        "unsupported-media",
        415,
        lambda siege: siege.put("mallory", b"x", Content_Encoding="zstd, zstd"),
    ),
    "no-length": (
        "length-required",
        411,
        raw(UPDATE, MEDIA, "Transfer-Encoding: chunked", body=b"1\r\nx\r\n0\r\n\r\n"),
    ),
    "endless-chunks": (
        "too-large",
        413,
        raw(
            "POST /v1/clients",
            "Transfer-Encoding: chunked",
            body=(b"8000\r\n" + bytes(0x8000) + b"\r\n") * 64,
        ),
    ),
    "declared-too-long": ("too-large", 413, raw(UPDATE, MEDIA, f"Content-Length: {10**12}")),
    "length-too-long": ("malformed", 400, raw(UPDATE, MEDIA, f"Content-Length: {'9' * 99}")),
    "length-negative": ("malformed", 400, raw(UPDATE, MEDIA, "Content-Length: -5")),
    "two-lengths": (
        "malformed",
        400,
        raw(UPDATE, MEDIA, "Content-Length: 4", "Content-Length: 9", body=b"four"),
    ),
    "length-and-chunks": (
        "malformed",
        400,
        raw(UPDATE, MEDIA, "Content-Length: 4", "Transfer-Encoding: chunked", body=b"four"),
    ),
    "body-shorter-than-declared": (
        "slow-body",
        408,
        raw(UPDATE, MEDIA, "Content-Length: 1000", body=b"few"),
    ),
    "body-longer-than-declared": (
        "malformed",
        400,
        raw(UPDATE, MEDIA, "Content-Length: 4", body=b"more than four"),
    ),
    "not-http": ("malformed", 400, lambda siege: siege.raw(b"\x16\x03\x01\x02\x00\r\n\r\n")),
    "control-character": ("malformed", 400, raw("GET /v1/ticket", "X-Evil: a\x00b")),
    "endless-header": ("head-too-large", 431, raw("GET /v1/ticket", "X-Long: " + "x" * 200_000)),
    "many-headers": (
        "head-too-large",
        431,
        raw("GET /v1/ticket", *(f"X-{i}: {i}" for i in range(20_000))),
    ),
    "event-id": (
        "invalid-request",
        422,
        ask("GET", "/v1/runs/small-1/events", "operator", headers={"Last-Event-ID": "$"}),
    ),
    # Speed and rate limits.
    "slow-upload": ("slow-body", 408, slow_upload),
    "slow-json": ("slow-body", 408, slow_json),
    "slow-head": ("slow-head", 408, slow_head),
    "two-at-once": ("too-many-requests", 429, two_at_once),
    "many-streams": ("too-many-requests", 429, many_streams),
    "many-rotations": ("too-many-requests", 429, many_rotations),
    "many-models": ("too-many-requests", 429, many_models),
    "many-polls": ("too-many-requests", 429, many_polls),
}


@pytest.mark.parametrize("name", CASES)
def test_hostile_request_is_refused_with_its_problem_type(siege: Any, name: str) -> None:
    slug, status, send = CASES[name]
    reply = send(siege)
    assert (reply.slug, reply.status) == (slug, status), reply.body
    if status == 429:
        assert int(reply.headers["retry-after"]) >= 1
    if status == 401:
        assert reply.headers["www-authenticate"] == "Bearer"


def test_repeated_identical_upload_gets_the_same_receipt(siege: Any) -> None:
    again = siege.put("ada", siege.update(1))
    assert (again.status, json.loads(again.body)) == (200, siege.receipt)


@pytest.fixture
def lone_siege(besiege: Any, tmp_path: Path) -> Iterator[Any]:
    """A federation of its own, for a test that ends the round."""
    with besiege(tmp_path) as arena:
        yield arena


def test_honest_clients_finish_the_round_after_all_attacks(lone_siege: Any) -> None:
    siege = lone_siege
    for _, _, send in CASES.values():
        send(siege)
    for name in ("bob", "cleo"):
        assert siege.put(name, siege.update(1)).status == 200
    siege.wait_for(1, "evaluating")
    (record,) = siege.local.run.rounds(since=1)
    assert record.status == "published"
    assert record.participants == ["ada", "bob", "cleo"]
    assert set(record.norms) == set(record.metrics) == {"ada", "bob", "cleo"}
    assert {v.client: v.decision for v in record.verdicts} == dict.fromkeys(
        record.participants, "accepted"
    )
    assert siege.local.run.status().evicted == ["eve"]
    kept = list((siege.local.folder / "blobs").glob("*/tmp/*"))
    assert not kept, "refused bytes are gone from the disk"
    assert siege.watch.stop() <= 2 * len(siege.update()) + MARGIN
