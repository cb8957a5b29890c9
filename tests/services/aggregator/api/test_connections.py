"""Connections limit request heads and data that either side leaves unread, and nothing else."""

import asyncio
import resource
from collections import deque
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import Mock

import pytest
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.server import ServerState

from rampart_fl.services.aggregator.api import connections as module
from rampart_fl.services.aggregator.api.connections import (
    FILES,
    HEAD,
    PIPELINED,
    Connection,
    PipelinedRequests,
    ReadingFlow,
    SmallEvent,
    open_files,
)

pytestmark = pytest.mark.anyio
PATIENCE, MOST = 0.15, 8
ANSWERED = asyncio.Event()
"""Set once a large answer is written or aborted."""
HELD = asyncio.Event()
"""Ends the wait of a request with the query `held`."""


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the length of the body; `/unread` and `/begun` answer before the body arrives.

    `/begun` then reads the body. `/large` sends as many MiB as the query says, in pieces. `/late`
    answers after a delay. With the query `held`, an answer waits for the event `HELD`.
    """
    size, more = 0, scope["path"] not in {"/unread", "/large"}
    headers = [(b"content-type", b"text/plain")]
    if scope["path"] == "/large":
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for _ in range(int(scope["query_string"])):
            await send({"type": "http.response.body", "body": bytes(2**20), "more_body": True})
        ANSWERED.set()
    if scope["path"] == "/begun":
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"begun ", "more_body": True})
    if scope["path"] == "/late":
        await asyncio.sleep(PATIENCE / 10)
    if scope["query_string"] == b"held":
        await HELD.wait()
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size += len(message["body"])
        more = message["more_body"]
    if scope["path"] not in {"/begun", "/large"}:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": str(size).encode()})


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """A server of `app` with short time limits."""
    config = uvicorn.Config(
        app,
        http=Connection.with_limits(PATIENCE, MOST),
        ws="none",
        lifespan="off",
        log_config=None,
        timeout_keep_alive=1,
    )
    config.load()
    state = ServerState()
    make: Any = config.http_protocol_class
    server = await asyncio.get_running_loop().create_server(
        lambda: make(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    yield server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()


async def talk(port: int, *pieces: bytes, pause: float = 0.0) -> bytes:
    """Everything that the server sends in answer to these bytes until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for number, piece in enumerate(pieces):
            await asyncio.sleep(pause if number else 0)
            writer.write(piece)
            await writer.drain()
        async with asyncio.timeout(10):
            return await reader.read()
    except ConnectionResetError:
        return b"reset"
    finally:
        writer.close()


def head(path: str = "/", *headers: str) -> bytes:
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: test", *headers, "", ""]).encode()


CLOSE = "Connection: close"


async def test_pipelined_requests_are_served(port: int) -> None:
    two = head("/", "Content-Length: 3") + b"abc" + head("/", CLOSE, "Content-Length: 1") + b"d"
    answer = await talk(port, two)
    assert answer.count(b"HTTP/1.1 200 OK") == 2
    assert b"\r\n\r\n" in answer


async def test_full_queue_of_pipelined_requests_is_served(port: int) -> None:
    queued = PIPELINED * head("/", "Content-Length: 0") + head("/", CLOSE, "Content-Length: 0")
    assert (await talk(port, queued)).count(b"HTTP/1.1 200 OK") == PIPELINED + 1


@pytest.mark.parametrize("length", [0, 3])
async def test_too_many_pipelined_requests_are_refused(port: int, length: int) -> None:
    one = head("/late", f"Content-Length: {length}") + bytes(length)
    answer = b"reset"
    while answer == b"reset":  # An answer is lost to a client that is still sending.
        answer = await talk(port, 1000 * one)
    assert answer.startswith(b"HTTP/1.1 429")
    assert b"urn:rampart:too-many-requests" in answer
    assert b"\r\nretry-after: 1\r\n" in answer
    assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("anyio_backend", ["asyncio", ("asyncio", {"use_uvloop": True})])
async def test_body_of_the_last_pipelined_request_is_read_in_its_turn(port: int) -> None:
    size = 2**22
    heads = 3 * head("/late", "Content-Length: 0") + head("/", CLOSE, f"Content-Length: {size}")
    answer = await talk(port, heads, *[bytes(2**20)] * 4, pause=PATIENCE / 30)
    assert answer.count(b"HTTP/1.1 200 OK") == 4
    assert str(size).encode() in answer


def test_server_reads_nothing_while_pipelined_requests_wait() -> None:
    transport, pipeline = Mock(), PipelinedRequests(["waits"])
    flow = ReadingFlow(transport, pipeline)
    flow.pause_reading()
    flow.resume_reading()
    transport.resume_reading.assert_not_called()
    pipeline.pop()
    flow.resume_reading()
    transport.resume_reading.assert_called_once()


async def test_silent_connection_is_closed(port: int) -> None:
    assert await talk(port) == b""


async def test_connections_beyond_the_limit_are_refused_with_503(port: int) -> None:
    idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MOST)]
    answer = await talk(port)
    assert answer.startswith(b"HTTP/1.1 503")
    assert b"8 connections are already open" in answer
    for reader, writer in idle:
        assert await reader.read() == b"", "whoever says nothing makes room"
        writer.close()
    assert (await talk(port, head("/", CLOSE, "Content-Length: 0"))).startswith(b"HTTP/1.1 200")


def test_open_file_limit_is_raised_as_far_as_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    limits, unlimited = (100, 400), resource.RLIM_INFINITY

    def change(_: int, wanted: tuple[int, int]) -> None:
        nonlocal limits
        limits = wanted

    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", change)
    assert (open_files(), limits) == (400, (400, 400))
    limits = (100, unlimited)
    assert (open_files(), limits) == (FILES, (FILES, unlimited))
    limits = (unlimited, unlimited)
    assert (open_files(), limits) == (FILES, (unlimited, unlimited))


@pytest.mark.slow
@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": True})])
async def test_client_that_disconnects_before_the_response_logs_no_error(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(PIPELINED * head("/late", "Content-Length: 0"))
    await asyncio.sleep(PATIENCE / 5)
    writer.transport.abort()
    await asyncio.sleep(2 * PATIENCE)
    assert caplog.text == ""


async def test_ignored_upgrade_request_is_not_logged(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    upgrade = head("/", "Connection: close, Upgrade", "Upgrade: websocket")
    assert (await talk(port, upgrade)).startswith(b"HTTP/1.1 200")
    assert caplog.text == ""


async def test_incomplete_request_head_is_refused(port: int) -> None:
    answer = await talk(port, b"POST / HTTP/1.1\r\nHost: te")
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"application/problem+json" in answer
    assert b"urn:rampart:slow-head" in answer


async def test_empty_lines_do_not_keep_a_connection_open(port: int) -> None:
    answer = await talk(port, *[b"\r\n"] * 20, pause=PATIENCE / 10)
    assert answer == b"reset" or b"slow-head" in answer


@pytest.mark.parametrize("header", ["X: " + "y" * HEAD, "\r\n".join(["X: y"] * (HEAD // 6))])
async def test_oversized_request_head_is_refused(port: int, header: str) -> None:
    answer = b"reset"
    while answer == b"reset":  # An answer is lost to a client that is still sending.
        answer = await talk(port, head("/", header)[:-2])
    assert answer.startswith(b"HTTP/1.1 431")
    assert b"urn:rampart:head-too-large" in answer


@pytest.mark.parametrize("path", ["/", "/unread"])
@pytest.mark.parametrize("start", [b"0\r\nX: ", b"1;x=", b"1\r\nx\r\n1;x="])
async def test_oversized_trailers_and_chunk_extensions_are_refused(
    port: int, path: str, start: bytes
) -> None:
    pieces = [head(path, "Transfer-Encoding: chunked") + start, *[b"y" * (HEAD // 4)] * 5]
    answer = await talk(port, *pieces, pause=PATIENCE / 30)
    assert (b"urn:rampart:head-too-large" in answer) == (path == "/")
    assert answer.count(b"HTTP/1.1") == 1, "a request gets one answer"


async def test_oversized_head_behind_an_unanswered_request_is_refused(port: int) -> None:
    HELD.clear()
    pieces = [head("/?held", "Content-Length: 0"), b"POST / HTTP/1.1\r\nX: ", b"y" * HEAD]
    assert b"urn:rampart:head-too-large" in await talk(port, *pieces, pause=PATIENCE / 10)
    HELD.set()


async def test_many_small_chunks_are_read(port: int) -> None:
    chunks = 4 * HEAD
    body = b"1;x=y\r\nz\r\n" * chunks + b"0\r\nX: y\r\n\r\n"
    pieces = [body[at : at + 5000] for at in range(0, len(body), 5000)]
    answer = await talk(port, head("/", CLOSE, "Transfer-Encoding: chunked"), *pieces)
    assert answer.startswith(b"HTTP/1.1 200")
    assert str(chunks).encode() in answer


async def test_long_body_does_not_count_as_request_head(port: int) -> None:
    body = bytes(10 * HEAD)
    answer = await talk(port, head("/", CLOSE, f"Content-Length: {len(body)}") + body)
    assert answer.startswith(b"HTTP/1.1 200")
    assert str(len(body)).encode() in answer


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"POST / HTTP/9.9\r\n\r\n",
        head("/", "Content-Length: -1"),
        head("/", "Content-Length: 1", "Content-Length: 2"),
        head("/", "Transfer-Encoding: chunked") + b"zz\r\n",
        b"POST /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://a HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
async def test_invalid_http_is_refused_with_a_problem_document(port: int, data: bytes) -> None:
    answer = await talk(port, data)
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"urn:rampart:malformed" in answer


async def test_started_response_is_not_mixed_with_an_error(port: int) -> None:
    data = head("/begun", "Transfer-Encoding: chunked")
    answer = await talk(port, data, b"zz\r\n", pause=0.02)
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"problem" not in answer


async def test_started_response_is_not_mixed_with_the_error_of_a_pipelined_request(
    port: int,
) -> None:
    HELD.clear()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head("/begun?held", "Content-Length: 0"))
    await reader.readuntil(b"begun")
    writer.write(head("/", "Transfer-Encoding: chunked") + b"zz\r\n")
    async with asyncio.timeout(10):
        assert await reader.read() == b" \r\n"
    HELD.set()
    writer.close()


@pytest.mark.slow
async def test_slow_body_is_accepted_while_the_application_reads_it(port: int) -> None:
    """The code that reads bodies limits their time; the connection does not."""
    data = head("/", CLOSE, "Content-Length: 4")
    answer = await talk(port, data, b"ab", b"cd", pause=1.5 * PATIENCE)
    assert answer.startswith(b"HTTP/1.1 200")


async def test_connection_with_a_slow_unread_body_is_closed(port: int) -> None:
    data = head("/unread", f"Content-Length: {10**9}")
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    async with asyncio.timeout(10):
        with pytest.raises(ConnectionError):
            while True:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(PATIENCE / 10)
    writer.close()


async def test_connection_survives_a_short_unread_body(port: int) -> None:
    data = head("/unread", "Content-Length: 4")
    answer = await talk(port, data, b"abcd" + head("/", CLOSE, "Content-Length: 0"), pause=0.02)
    assert answer.count(b"HTTP/1.1 200 OK") == 2


@pytest.mark.slow
async def test_connection_is_not_kept_for_ever_after_a_short_unread_body(port: int) -> None:
    answer = await talk(port, head("/unread", "Content-Length: 4"), b"abcd", pause=0.02)
    assert answer.count(b"HTTP/1.1 200 OK") == 1


@pytest.mark.slow
async def test_kept_alive_connection_waits_for_its_next_request(port: int) -> None:
    first = head("/", "Content-Length: 0")
    answer = await talk(port, first, head("/", CLOSE, "Content-Length: 0"), pause=2 * PATIENCE)
    assert answer.count(b"HTTP/1.1 200 OK") == 2
    assert module.Connection.patience == 30.0


async def test_unread_response_is_aborted(port: int) -> None:
    ANSWERED.clear()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /large?64 HTTP/1.1\r\nHost: test\r\n\r\n")
    async with asyncio.timeout(10):
        await ANSWERED.wait()
        assert len(await reader.read()) < 64 * 2**20
    writer.close()


@pytest.mark.slow
async def test_slow_but_steady_reader_gets_the_whole_response(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /large?8 HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")
    size = 0
    while piece := await reader.read(2**18):
        size += len(piece)
        await asyncio.sleep(PATIENCE / 15)
    assert size > 8 * 2**20
    writer.close()


async def test_small_event_sets_exactly_the_fields_of_an_event_of_this_python() -> None:
    """A release of CPython that renames a field must not turn `SmallEvent` into a second event."""
    plain, small = vars(asyncio.Event()), vars(SmallEvent())
    assert plain == {"_waiters": deque(), "_value": False}
    assert small == {"_waiters": [], "_value": False}
    assert vars(SmallEvent(on=True))["_value"] is True
    transport: Any = None
    assert type(vars(FlowControl(transport))["_is_writable_event"]) is asyncio.Event


async def test_small_event_wakes_every_task_that_waits_and_was_not_cancelled() -> None:
    event = SmallEvent()
    waiting = [asyncio.create_task(event.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    await asyncio.sleep(0)
    assert not event.is_set()
    event.set()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [result is True for result in results] == [True, False, True]
    assert await SmallEvent(on=True).wait()
    event.clear()
    assert not event.is_set()


def test_pipeline_returns_the_oldest_request_first() -> None:
    pipeline = PipelinedRequests()
    for request in ("first", "second"):
        pipeline.appendleft(request)
    assert [pipeline.pop(), pipeline.pop()] == ["first", "second"] and not pipeline
