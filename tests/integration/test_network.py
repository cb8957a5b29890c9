"""HTTP version 1 against a real aggregator: tokens, caching, waiting, streams, encodings."""

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import numpy as np
import pytest
import zstandard

from rampart_fl.services.aggregator.api.routes.run_status import STREAMS_EACH
from rampart_fl.services.aggregator.state.stores import Stores
from rampart_fl.services.console.connection.operator import Operator
from rampart_fl.shared.errors import Unavailable
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.runtime.tokens import mint, token_hash
from tests.integration.conftest import RUN
from tests.integration.in_process_federation import until

NAMES = ("ada", "bob", "cleo", "dora", "eve", "finn")


@pytest.fixture(scope="module")
def arena(start_arena: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A federation in round 0."""
    with start_arena(tmp_path_factory.mktemp("network"), NAMES, joins_per_minute="40") as arena:
        arena.wait_for(0)
        yield arena


def ticket(arena: Any, client: str, **headers: str) -> Any:
    all_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return arena.call("GET", "/v1/ticket", arena.tokens[client], all_headers)


# -- tokens ----------------------------------------------------------------------------------------


def test_replaced_client_token_is_rejected_immediately(arena: Any) -> None:
    old, new = arena.tokens["dora"], mint()
    for _ in range(3):
        assert ticket(arena, "dora").status == 200
        body = {"token_hash": token_hash(new)}
        answer = arena.call("PUT", "/v1/clients/dora/token", old, json=body)
        assert answer.status == 200
        assert json.loads(answer.body)["client_id"] == "dora"
        assert arena.call("GET", "/v1/ticket", old).slug == "unauthorized"
        arena.tokens["dora"] = new
        old, new = new, mint()


def test_revoked_token_is_rejected_until_an_operator_sets_a_new_one(arena: Any) -> None:
    assert ticket(arena, "finn").status == 200
    assert arena.call("DELETE", "/v1/clients/finn/token", arena.operator).status == 204
    assert ticket(arena, "finn").slug == "unauthorized"
    arena.tokens["finn"] = mint()
    body = {"token_hash": token_hash(arena.tokens["finn"])}
    assert arena.call("PUT", "/v1/clients/finn/token", arena.operator, json=body).status == 200
    assert ticket(arena, "finn").status == 200


def test_only_hashes_of_tokens_are_stored(arena: Any) -> None:
    async def everything(stores: Stores) -> str:
        client, results = stores.redis.client, []
        read = {
            "hash": client.hgetall,
            "list": lambda key: client.lrange(key, 0, -1),
            "stream": client.xrange,
            "string": client.get,
            "zset": lambda key: client.zrange(key, 0, -1),
        }
        for key in await client.keys("*"):
            results.append(await read[await client.type(key)](key))
        return str(results)

    join_tokens = arena.local.operator.mint_unbound(2).tokens
    stored = arena.stores(everything)
    assert token_hash(arena.tokens["ada"]) in stored
    for token in (arena.operator, *arena.tokens.values(), *join_tokens):
        assert token not in stored


def test_redis_requires_its_password(arena: Any) -> None:
    async def ask(password: str | None) -> None:
        url = f"redis://127.0.0.1:{arena.local.redis_port}/0"
        async with aclosing(Stores.connect(url, password, "rampart")) as stores:
            stores.redis.client.connection_pool.connection_kwargs["retry"]._retries = 0
            await stores.redis.ping()

    asyncio.run(ask(arena.local.redis_password))
    for wrong in (None, "another"):
        with pytest.raises(Unavailable, match=r"(?i)auth|password"):
            asyncio.run(ask(wrong))


# -- models ----------------------------------------------------------------------------------------


def test_models_are_cached_by_digest(arena: Any) -> None:
    path, token = f"{RUN}/models/global", arena.operator
    first = arena.call("GET", path, token)
    etag = first.headers["etag"]
    assert first.headers["content-type"] == wire.MEDIA_TYPE
    assert first.headers["content-length"] == str(len(first.body))
    for known in (etag, f'"other", {etag}'):
        again = arena.call("GET", path, token, {"If-None-Match": known})
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", etag)
    assert arena.call("GET", path, token, {"If-None-Match": '"other"'}).status == 200
    digest = json.loads(ticket(arena, "ada").body)["models"]["model"]
    assert etag == f'"{digest}"'
    named = arena.call("GET", f"{RUN}/models/{digest}", arena.tokens["ada"])
    assert (named.status, named.body) == (200, first.body)


# -- waiting ---------------------------------------------------------------------------------------


def test_long_poll_returns_204_on_timeout_or_the_new_ticket(arena: Any) -> None:
    first = ticket(arena, "eve")
    etag = first.headers["etag"]
    assert json.loads(first.body)["kind"] == "train"
    started = time.monotonic()
    nothing = ticket(arena, "eve", If_None_Match=etag, Prefer="wait=1")
    assert (nothing.status, nothing.body, nothing.headers["etag"]) == (204, b"", etag)
    assert time.monotonic() - started >= 1
    assert ticket(arena, "eve", If_None_Match=etag).status == 204, "without Prefer nobody waits"
    assert ticket(arena, "eve", If_None_Match='"other"', Prefer="wait=20").status == 200

    evict = threading.Timer(0.3, arena.local.run.decide, ("eve", "evict", "a test"))
    evict.start()
    news = ticket(arena, "eve", If_None_Match=etag, Prefer="wait=20")
    evict.join()
    assert (news.status, json.loads(news.body)["kind"]) == (200, "evicted")
    assert json.loads(news.body)["reason"] == "a test"


def test_closed_event_stream_frees_its_slot(arena: Any) -> None:
    impatient = Operator(arena.local.url, arena.operator, patience=0.0)
    run = impatient.run(arena.local.run.id)

    def opens() -> bool:
        try:
            return bool(next(run.events("0-0")))
        except Unavailable:
            return False

    with contextlib.ExitStack() as stack:
        for _ in range(STREAMS_EACH):
            stream = stack.enter_context(arena.connect())
            token = f"Authorization: Bearer {arena.operator}"
            stream.sendall(arena.head(f"GET {RUN}/events", None, token))
            assert stream.recv(12) == b"HTTP/1.1 200"
        assert not opens()
    until(opens)


def test_event_stream_resumes_after_the_last_event_id(arena: Any) -> None:
    def first(count: int, after: str) -> list[dict[str, str]]:
        events = arena.local.run.events(after)
        return [next(events) for _ in range(count)]

    received = first(4, "0-0")
    assert [event["type"] for event in received] == ["founded", "accepted", "accepted", "accepted"]
    assert [event.get("client") for event in received[1:]] == ["ada", "bob", "cleo"]
    assert first(2, received[1]["id"]) == received[2:4]

    done: list[dict[str, str]] = []
    listener = threading.Thread(target=lambda: done.extend(first(1, received[-1]["id"])))
    listener.start()
    listener.join(20)
    assert done[0]["client"] == "dora"


# -- uploads ---------------------------------------------------------------------------------------


def test_every_encoding_of_an_update_gives_the_same_row(arena: Any) -> None:
    update_D = np.random.default_rng(7).normal(size=arena.spec.dim).astype(np.float32)
    claims = {"report": '{"samples": 3}'}
    plain = wire.encode(arena.spec, update_D, claims)
    uploads = {
        0: {
            "ada": (plain, {}),
            "bob": (zstandard.compress(plain, 10), {"Content_Encoding": "zstd"}),
            "cleo": (wire.encode(arena.spec, update_D, claims, "BF16"), {}),
        },
        1: {
            "ada": (plain, {}),
            "bob": (wire.encode(arena.spec, update_D, claims, "F16"), {}),
            "cleo": (
                zstandard.compress(wire.encode(arena.spec, update_D, claims, "BF16")),
                {"Content_Encoding": "zstd"},
            ),
        },
    }
    norms, digests = {}, {}
    for round_, sent in uploads.items():
        arena.wait_for(round_)
        for client, (data, headers) in sent.items():
            reply = arena.put(client, data, f"{RUN}/rounds/{round_}/update", **headers)
            assert reply.status == 200
            digests[round_, client] = json.loads(reply.body)["digest"]
    arena.wait_for(1, "evaluating")
    for record in arena.local.run.rounds():
        norms[record.round] = record.norms
    exact = float(np.linalg.norm(update_D.astype(np.float64)))
    assert digests[0, "ada"] == digests[0, "bob"] == digests[1, "ada"]
    assert digests[0, "cleo"] == digests[1, "cleo"]
    assert norms[0]["ada"] == norms[0]["bob"] == norms[1]["ada"] == pytest.approx(exact, rel=1e-12)
    assert norms[1]["bob"] == pytest.approx(exact, rel=2**-11)
    assert norms[0]["cleo"] == norms[1]["cleo"] == pytest.approx(exact, rel=2**-8)


def test_metrics_count_uploads_rounds_and_verdicts(arena: Any) -> None:
    """Runs after the uploads above."""
    arena.put("ada", arena.update(float("nan")), f"{RUN}/rounds/7/update")
    text = arena.call("GET", "/metrics", None).body.decode()
    values = dict(
        line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#")
    )
    assert float(values['rampart_uploads_total{kind="update",outcome="accepted"}']) >= 6
    assert float(values['rampart_uploads_total{kind="update",outcome="no-ticket"}']) >= 1
    assert float(values["rampart_received_bytes_total"]) > 4 * 4 * arena.spec.dim
    assert float(values["rampart_sent_bytes_total"]) > 0
    assert float(values['rampart_phase{phase="evaluating"}']) == 1
    assert float(values['rampart_rounds_total{status="published"}']) == 2
    assert float(values['rampart_verdicts_total{decision="accepted"}']) == 6
    assert float(values["rampart_evicted_clients"]) == 1
    assert float(values["rampart_redis_up"]) == 1
    assert float(values["rampart_pool_bytes"]) >= 3 * 4 * arena.spec.dim
    for name in (
        "rampart_event_loop_lag_seconds",
        'rampart_round_step_seconds_count{step="aggregate"}',
        'rampart_request_seconds_count{route="/v1/runs/{run}/rounds/{round}/{kind}",status="200"}',
    ):
        assert name in values


def test_join_attempts_are_rate_limited(arena: Any) -> None:
    """Runs last: afterwards, nobody may join for a minute."""
    for _ in range(100):
        body = {"token_hash": token_hash(mint())}
        reply = arena.call("POST", "/v1/clients", mint(), json=body)
        if reply.status != 401:
            break
    assert (reply.slug, reply.status) == ("too-many-requests", 429)
    assert reply.headers["retry-after"] == "60"
