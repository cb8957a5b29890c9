"""Following the events of a run over lost connections."""

from collections.abc import Callable, Iterator
from itertools import islice

import httpx
import pytest

from rampart_fl.services.console.connection.aggregator_connection import OperatorRefused
from rampart_fl.services.console.connection.event_stream import follow_events
from rampart_fl.services.console.connection.operated_run import OperatedRun
from rampart_fl.services.console.connection.operator import Operator
from rampart_fl.shared.errors import Unavailable


class Cut(httpx.SyncByteStream):
    """The body of a stream whose connection is lost after these bytes."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def __iter__(self) -> Iterator[bytes]:
        yield self._body
        raise httpx.RemoteProtocolError("incomplete chunked read")


def stream(body: bytes, lost: bool = False) -> httpx.Response:
    headers = {"Content-Type": "text/event-stream"}
    content = Cut(body) if lost else httpx.ByteStream(body)
    return httpx.Response(200, headers=headers, stream=content)


def run_of(answer: Callable[[httpx.Request], httpx.Response]) -> OperatedRun:
    operator = Operator("http://test", "t" * 43, patience=5.0)
    operator.close()
    operator._http = httpx.Client(base_url="http://test", transport=httpx.MockTransport(answer))
    return operator.run("x-1")


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)


def test_stream_continues_after_the_last_event_of_a_lost_connection() -> None:
    first, second = b'id: 1-0\ndata: {"n": 1}\n\n', b'id: 2-0\ndata: {"n": 2}\n\n'
    third = b'event: tick\n\nid: 3-0\ndata: {"n": 3}\n\n'
    answers = iter(
        [
            stream(first, lost=True),
            httpx.Response(503),
            stream(second + b'id: 3-0\ndata: {"cut'),
            stream(third),
        ]
    )
    positions = list[str]()

    def answer(request: httpx.Request) -> httpx.Response:
        positions.append(request.headers["last-event-id"])
        return next(answers)

    run = run_of(answer)
    events = list(islice(follow_events(run, 60.0), 4))
    assert events == [{"id": "1-0", "n": 1}, {"id": "2-0", "n": 2}, {}, {"id": "3-0", "n": 3}]
    assert positions == ["0-0", "1-0", "1-0", "2-0"]
    run.connection.close()


@pytest.mark.parametrize(
    ("lost", "reason"), [(True, "incomplete chunked read"), (False, "closed the event stream")]
)
def test_stream_that_is_always_lost_at_once_is_an_error(lost: bool, reason: str) -> None:
    opened = list[httpx.Request]()

    def answer(request: httpx.Request) -> httpx.Response:
        opened.append(request)
        return stream(b"", lost)

    run = run_of(answer)
    with pytest.raises(Unavailable, match=reason):
        next(follow_events(run, 0.0))
    assert len(opened) == 1
    run.connection.close()


def test_refusal_ends_the_stream() -> None:
    problem = {"type": "urn:rampart:unauthorized", "detail": "revoked"}
    answers = iter([stream(b"event: tick\n\n"), httpx.Response(401, json=problem)])
    run = run_of(lambda _: next(answers))
    events = follow_events(run, 60.0)
    assert next(events) == {}
    with pytest.raises(OperatorRefused, match="revoked"):
        next(events)
    run.connection.close()
