"""The client's side of HTTP: retries, refusals, long polls and uploads."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import zstandard

from rampart_fl.shared.agent.client import AggregatorClient, RequestRefused
from rampart_fl.shared.errors import ConfigurationError, Unavailable
from rampart_fl.shared.runtime import retries

pytestmark = pytest.mark.anyio
DIGEST = "d" * 64
Handler = Callable[[httpx.Request], httpx.Response]
TICKET = {"round": 1, "kind": "train", "models": {"model": DIGEST}, "experiment": DIGEST}


def problem(status: int, slug: str, **headers: str) -> httpx.Response:
    body = {"type": f"urn:rampart:{slug}", "title": "", "status": status, "detail": "why"}
    return httpx.Response(status, json=body, headers=headers)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Records the pauses between attempts instead of making them."""
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", note)
    yield pauses


def connect(handler: Handler, **options: Any) -> AggregatorClient:
    connection = AggregatorClient("http://test", "t" * 43, **options)
    connection.http = httpx.AsyncClient(
        base_url="http://test", transport=httpx.MockTransport(handler)
    )
    return connection


async def test_failed_requests_are_retried_until_they_succeed(no_pauses: list[float]) -> None:
    answers: list[Any] = [
        httpx.ConnectError("refused"),
        httpx.ReadError("reset"),
        problem(503, "unavailable"),
        problem(429, "too-many-requests", **{"Retry-After": "7"}),
        httpx.DecodingError("a proxy's gzip is cut short"),
        httpx.Response(502, text="<html>"),
        httpx.Response(503, headers={"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}),
        httpx.Response(200, json={"name": "x"}),
    ]

    def answer(request: httpx.Request) -> httpx.Response:
        following = answers.pop(0)
        if isinstance(following, Exception):
            raise following
        return following

    connection = connect(answer)
    assert await connection.experiment("x-1") == {"name": "x"}
    assert len(no_pauses) == 7
    assert no_pauses[3] >= 3.5, "Retry-After is obeyed, jitter aside"
    assert max(no_pauses) <= 7
    await connection.close()


@pytest.mark.parametrize(
    ("status", "slug"), [(401, "unauthorized"), (403, "evicted"), (409, "conflict"), (410, "late")]
)
async def test_refused_requests_are_not_retried(
    status: int, slug: str, no_pauses: list[float]
) -> None:
    connection = connect(lambda _: problem(status, slug))
    with pytest.raises(RequestRefused) as refusal:
        await connection.upload("x-1", 1, "update", b"x")
    assert (refusal.value.code, refusal.value.reason) == (status, slug)
    assert no_pauses == []
    await connection.close()


async def test_error_status_without_problem_details_is_a_refusal() -> None:
    connection = connect(lambda _: httpx.Response(404, text="<html>nginx"))
    with pytest.raises(RequestRefused, match="404 unknown: <html>nginx"):
        await connection.heartbeat()
    await connection.close()


@pytest.mark.parametrize("code", [301, 308])
async def test_redirect_is_an_error_that_names_its_target(code: int) -> None:
    """For example, a proxy redirects http to https. Tokens are not sent to the new address."""
    moved = {"Location": "https://other/v1/runs/x-1/experiment"}
    connection = connect(lambda _: httpx.Response(code, headers=moved))
    with pytest.raises(ConfigurationError, match="'http://test' redirects to 'https://other"):
        await connection.experiment("x-1")
    await connection.close()


async def test_retries_end_when_patience_runs_out() -> None:
    def away(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("nobody there")

    connection = connect(away, patience=0.0)
    with pytest.raises(Unavailable, match="nobody there"):
        await connection.ticket(None)
    await connection.close()


async def test_invalid_url_is_rejected_without_retries() -> None:
    connection = AggregatorClient("127.0.0.1:8440", "t" * 43)
    with pytest.raises(ConfigurationError, match=r"'127.0.0.1:8440': .*http://"):
        await connection.heartbeat()
    await connection.close()


async def test_long_wait_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attempts = 0

    def answer(request: httpx.Request) -> httpx.Response:
        nonlocal attempts
        attempts += 1
        monkeypatch.setattr(retries, "QUIET", 10.0 if attempts < 3 else -1.0)
        return problem(503, "unavailable") if attempts < 6 else httpx.Response(204)

    connection = connect(answer)
    await connection.heartbeat()
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning == "http://test/v1/heartbeat: 503 unavailable: why; retrying for at most 3600 s"
    await connection.close()


async def test_retried_upload_sends_every_byte_again() -> None:
    data, seen = bytes(range(256)) * 9000, list[bytes]()

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.content)
        assert request.headers["content-length"] == str(len(request.content))
        assert request.headers["content-type"] == "application/vnd.safetensors"
        if len(seen) < 3:
            return problem(503, "unavailable")
        body = {"round": 1, "kind": "update", "client": "a", "digest": DIGEST}
        return httpx.Response(200, json=body)

    connection = connect(answer)
    receipt = await connection.upload("x-1", 1, "update", data)
    assert (receipt.client, seen) == ("a", [data] * 3)
    await connection.close()


async def test_compressed_uploads_declare_their_encoding() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.headers["content-encoding"] == "zstd"
        assert zstandard.decompress(request.content) == bytes(5000)
        body = {"round": 1, "kind": "probe", "client": "a", "digest": DIGEST}
        return httpx.Response(200, json=body)

    connection = connect(answer, compress=True)
    assert (await connection.upload("x-1", 1, "probe", bytes(5000))).kind == "probe"
    await connection.close()


async def test_connection_decides_how_long_requests_for_tickets_stay_open() -> None:
    seen = list[str]()

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["prefer"])
        if request.method == "GET":
            return httpx.Response(204)
        body = {"round": 1, "kind": "update", "client": "a", "digest": DIGEST}
        return httpx.Response(200, json=body)

    connection = connect(answer, poll=1)
    await connection.ticket("known")
    await connection.ticket_and_model("known", "", wait=7)
    await connection.upload_and_wait("x-1", 1, "update", b"x", DIGEST)
    assert seen == ["wait=1", "wait=7", "wait=1"]
    await connection.close()


@pytest.mark.parametrize(("poll", "longest"), [(1, 120), (30, 120), (31, 121), (300, 390)])
async def test_a_request_outlasts_the_delay_that_it_asks_for(poll: int, longest: float) -> None:
    """Otherwise, each quiet long poll would end in an error."""
    seen = list[float]()

    def answer(request: httpx.Request) -> httpx.Response:
        timeout = request.extensions["timeout"]
        seen.append(timeout.pop("read"))
        assert timeout == {"connect": 5, "write": 120, "pool": None}
        if request.method == "GET":
            return httpx.Response(204)
        body = {"round": 1, "kind": "update", "client": "a", "digest": DIGEST}
        return httpx.Response(200, json=body)

    connection = connect(answer, poll=poll)
    await connection.ticket("known")
    await connection.ticket_and_model("known", "")
    await connection.upload_and_wait("x-1", 1, "update", b"x", DIGEST)
    await connection.ticket("known", wait=200)
    await connection.upload("x-1", 1, "update", b"x")
    await connection.heartbeat()
    assert seen == [longest] * 3 + [290, 120, 120]
    await connection.close()


async def test_long_poll_names_the_known_ticket() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.headers["prefer"] == "wait=30"
        if request.headers.get("if-none-match") == '"known"':
            return httpx.Response(204)
        return httpx.Response(200, json=TICKET)

    connection = connect(answer)
    assert await connection.ticket("known") is None
    ticket = await connection.ticket(None)
    assert ticket is not None
    assert ticket.models == {"model": DIGEST}
    await connection.close()


async def test_ticket_response_includes_the_model_unless_the_client_has_it() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.headers["accept"] == "application/vnd.safetensors"
        if request.headers.get("rampart-model") == DIGEST:
            return httpx.Response(200, json=TICKET)
        headers = {"rampart-ticket": json.dumps(TICKET)}
        return httpx.Response(200, content=b"the model", headers=headers)

    connection = connect(answer)
    result = await connection.ticket_and_model(None, "")
    assert result is not None
    assert (result[0].models, result[1]) == ({"model": DIGEST}, b"the model")
    held = await connection.ticket_and_model(None, DIGEST)
    assert held is not None
    assert held == (result[0], None)
    await connection.close()


async def test_upload_response_can_include_the_next_ticket_and_model() -> None:
    receipt = {"round": 1, "kind": "update", "client": "a", "digest": DIGEST}

    def answer(request: httpx.Request) -> httpx.Response:
        assert (request.content, request.headers["rampart-model"]) == (b"x", DIGEST)
        assert request.headers["accept"] == "application/vnd.safetensors"
        if request.headers["prefer"] == "wait=0":
            return httpx.Response(200, json=receipt)
        headers = {"rampart-receipt": json.dumps(receipt), "rampart-ticket": json.dumps(TICKET)}
        return httpx.Response(200, content=b"the model", headers=headers)

    connection = connect(answer)
    alone, nothing = await connection.upload_and_wait("x-1", 1, "update", b"x", DIGEST, wait=0)
    assert (alone.client, nothing) == ("a", None)
    same, following = await connection.upload_and_wait("x-1", 1, "update", b"x", DIGEST)
    assert same == alone
    assert following is not None
    assert (following[0].models, following[1]) == ({"model": DIGEST}, b"the model")
    await connection.close()


@pytest.mark.parametrize("body", ["<html>welcome</html>", "[]", ""])
async def test_error_names_a_server_that_is_not_an_aggregator(body: str) -> None:
    connection = connect(lambda _: httpx.Response(200, text=body))
    for request in (
        connection.join("h" * 64, None),
        connection.experiment("x-1"),
        connection.ticket(None),
        connection.upload("x-1", 1, "update", b"x"),
        connection.evaluate("x-1", 1, {}),
    ):
        with pytest.raises(ConfigurationError, match="'http://test' does not seem to be an"):
            await request


@pytest.mark.parametrize("token", ["", "s3cret\n", " s3cret", "s3cret\r\nx: y", "s3crété"])
async def test_malformed_tokens_are_rejected_and_not_shown_in_the_error(token: str) -> None:
    with pytest.raises(ConfigurationError, match="not allowed in a token") as caught:
        AggregatorClient("http://test", token)
    assert "s3cr" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://127.0.0.1:abc", "http://[::1"])
async def test_url_with_an_invalid_port_is_rejected(url: str) -> None:
    with pytest.raises(ConfigurationError, match="Invalid port"):
        AggregatorClient(url, "t" * 43)
