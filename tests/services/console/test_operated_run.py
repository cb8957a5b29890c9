"""One run of a federation, as an operator reads it: its start, and its stream of events."""

from collections.abc import Callable

import httpx
import pytest

from rampart_fl.services.console.operated_run import OperatedRun
from rampart_fl.services.console.operator import Operator


def run_of(answer: Callable[[httpx.Request], httpx.Response]) -> OperatedRun:
    """The run x-2 of an aggregator that answers with this function."""
    operator = Operator("http://test", "t" * 43)
    operator.close()
    operator._http = httpx.Client(base_url="http://test", transport=httpx.MockTransport(answer))
    return operator.run("x-2")


def test_await_start_reports_each_reason_for_waiting_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rampart_fl.services.console.operated_run.POLL", 0.0)
    entry = {"name": "x", "experiment": "d" * 64, "submission": "s", "submitted_at": 0.0}
    entry |= {"run": "x-2", "submitted_by": "ada", "rounds": 1}
    steps = ["the end of x-1", "the end of x-1", "disk: it is full", "disk: it is full", ""]
    answers = iter(
        {**entry, "state": "queued" if step else "running", "waits_for": step} for step in steps
    )
    run = run_of(lambda _: httpx.Response(200, json=next(answers)))
    reasons: list[str] = []
    info = run.await_start(tell=lambda queued: reasons.append(queued.waits_for))
    assert (info.state, reasons) == ("running", ["the end of x-1", "disk: it is full"])
    run.connection.close()


def test_event_stream_is_opened_again_after_a_temporary_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    stream = b'id: 1-0\ndata: {"type": "opened"}\n\n'
    headers = {"Content-Type": "text/event-stream"}
    answers = iter([httpx.Response(503), httpx.Response(200, headers=headers, content=stream)])
    run = run_of(lambda _: next(answers))
    assert list(run.events()) == [{"id": "1-0", "type": "opened"}]
    run.connection.close()


def test_events_are_parsed_with_their_ids_however_the_stream_is_split() -> None:
    """Line endings vary, comments are ignored, and an event may have several data lines."""
    pieces = [
        b": hello\n\nid: 1-0\r\nevent: joined\r\nda",
        b'ta: {"type": "joined",\r\ndata: "client": "\xc3',
        b'\xa4da"}\r\n\r\nevent: tick\n\n',
        b'id:2-0\ndata:{"type":"opened"}\n\nid: 3-0\ndata: {"cut',
    ]
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(
            200, headers={"Content-Type": "text/event-stream"}, content=iter(pieces)
        )

    run = run_of(answer)
    joined = {"id": "1-0", "type": "joined", "client": "äda"}
    opened = {"id": "2-0", "type": "opened"}
    assert list(run.events("0-7")) == [joined, opened]
    assert list(run.events(ticks=True)) == [joined, {}, opened]
    assert [request.headers.get("last-event-id") for request in requests] == ["0-7", None]
    run.connection.close()
