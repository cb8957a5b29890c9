"""One run of a federation, as an operator reads it: its start, and its stream of events."""

from collections.abc import Callable

import httpx
import pytest

from rampart_fl.services.console.connection.operated_run import OperatedRun
from rampart_fl.services.console.connection.operator import Operator
from rampart_fl.services.console.reports.run_reader import RunReader
from rampart_fl.shared.protocol.messages import RoundRecord
from rampart_fl.shared.protocol.runs import RunInfo


def run_of(answer: Callable[[httpx.Request], httpx.Response]) -> OperatedRun:
    """The run x-2 of an aggregator that answers with this function."""
    operator = Operator("http://test", "t" * 43)
    operator.close()
    operator._http = httpx.Client(base_url="http://test", transport=httpx.MockTransport(answer))
    return operator.run("x-2")


def test_await_start_reports_each_reason_for_waiting_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rampart_fl.services.console.connection.operated_run.POLL", 0.0)
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


def run_with_records(kept: range) -> OperatedRun:
    """A run of an aggregator that still has the records of these rounds."""

    def answer(request: httpx.Request) -> httpx.Response:
        first, limit = (int(request.url.params[name]) for name in ("since", "limit"))
        assert 1 <= limit <= 1000, "the aggregator refuses any other limit"
        numbers = [number for number in kept if first <= number < first + limit]
        records = [RoundRecord(round=number, status="published") for number in numbers]
        facts = [record.model_dump(mode="json", exclude={"mixing"}) for record in records]
        return httpx.Response(200, json=[{**one, "mixing_digest": None} for one in facts])

    return run_of(answer)


@pytest.mark.parametrize("kept", [range(2500), range(1150, 2350)])
@pytest.mark.slow
def test_records_of_a_long_run_are_complete(kept: range) -> None:
    run = run_with_records(kept)
    assert [record.round for record in run.records(0, 2499)] == [*kept]
    assert [record.round for record in run.records(1200, 1300)] == [*range(1200, 1301)]
    entry = {"name": "x", "experiment": "d" * 64, "submission": "s", "submitted_at": 0.0}
    entry |= {"run": "x-2", "submitted_by": "ada", "rounds": 2500, "round": 2499}
    info = RunInfo.model_validate({**entry, "state": "finished", "started_at": 1.0})
    assert [record.round for record in RunReader(run, info).records()] == [*kept]
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
