"""An operator's connection to an aggregator: errors and pages."""

from collections.abc import Callable

import httpx
import pytest

from rampart_fl.services.console.connection.operator import Operator
from rampart_fl.shared.errors import ConfigurationError, Unavailable


@pytest.mark.parametrize("body", ["<html>welcome</html>", '{"a": 1}', "3"])
def test_error_names_a_server_that_is_not_an_aggregator(body: str) -> None:
    operator = Operator("http://test", "t" * 43)
    operator.close()
    operator._http = httpx.Client(
        base_url="http://test",
        transport=httpx.MockTransport(lambda _: httpx.Response(200, text=body)),
    )
    run = operator.run("x-1")
    for ask in (
        run.status,
        run.rounds,
        run.evaluations,
        operator.clients,
        lambda: operator.mint(["ada"]),
        lambda: operator.mint_unbound(1),
        lambda: run.decide("ada", "evict", "why"),
        lambda: run.steer("pause"),
        lambda: next(operator.run().events()),
        lambda: next(run.events()),
    ):
        with pytest.raises(ConfigurationError, match="'http://test' does not seem to be an"):
            ask()
    operator.close()


def damaged() -> httpx.Response:
    """An answer whose gzip body is damaged, for example by a proxy."""
    gzip = {"Content-Encoding": "gzip", "Content-Type": "text/event-stream"}
    return httpx.Response(200, headers=gzip, stream=httpx.ByteStream(b"no"))


def answered(make_answer: Callable[[], httpx.Response]) -> Operator:
    """An operator whose every request gets this answer, and who does not repeat requests."""
    operator = Operator("http://test", "t" * 43, patience=0.0)
    operator.close()
    operator._http = httpx.Client(
        base_url="http://test", transport=httpx.MockTransport(lambda _: make_answer())
    )
    return operator


REQUESTS: dict[str, Callable[[Operator], object]] = {
    "delete": lambda operator: operator.run("x-1").delete(),
    "revoke": lambda operator: operator.revoke("ada"),
    "revoke operator": lambda operator: operator.revoke_operator("bob"),
    "status": lambda operator: operator.run("x-1").status(),
    "events": lambda operator: next(operator.run("x-1").events()),
}


@pytest.mark.parametrize("request_of", REQUESTS.values(), ids=REQUESTS)
def test_redirect_is_an_error_and_never_a_success(request_of: Callable[[Operator], object]) -> None:
    operator = answered(
        lambda: httpx.Response(308, headers={"Location": "https://other/v1/runs/x-1"})
    )
    with pytest.raises(ConfigurationError, match="'http://test' redirects to 'https://other"):
        request_of(operator)
    operator.close()


def test_other_statuses_below_400_are_no_success() -> None:
    operator = answered(lambda: httpx.Response(304))
    with pytest.raises(ConfigurationError, match=r"does not seem to be an aggregator.* 304"):
        operator.run("x-1").delete()
    operator.close()


@pytest.mark.parametrize("request_of", REQUESTS.values(), ids=REQUESTS)
@pytest.mark.parametrize(
    ("make_answer", "reason"),
    [(damaged, "DecodingError"), (lambda: httpx.Response(503, text="busy"), "503 busy")],
    ids=["damaged", "busy"],
)
def test_damaged_answers_and_temporary_failures_are_retried(
    request_of: Callable[[Operator], object], make_answer: Callable[[], httpx.Response], reason: str
) -> None:
    operator = answered(make_answer)
    with pytest.raises(Unavailable, match=f"http://test.*: {reason}"):
        request_of(operator)
    operator.close()


def test_paginated_lists_are_read_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rampart_fl.services.console.connection.operator.PAGE", 2)
    entry = {"name": "x", "experiment": "d" * 64, "submission": "s", "submitted_at": 0.0}
    runs = [
        {**entry, "run": f"x-{number}", "submitted_by": "ada", "rounds": 1, "state": "queued"}
        for number in range(5)
    ]
    known = {"registered_at": 0.0, "last_seen": None, "online": False}
    clients = [{**known, "client_id": f"c-{number}"} for number in range(4)]

    def answer(request: httpx.Request) -> httpx.Response:
        query, limit = request.url.params, int(request.url.params["limit"])
        if request.url.path == "/v1/clients":
            later = [one for one in clients if one["client_id"] > query.get("after", "")]
            return httpx.Response(200, json=later[:limit])
        older = [one for one in runs if one["run"] < query.get("before", "y")]
        return httpx.Response(200, json=older[-limit:])

    operator = Operator("http://test", "t" * 43)
    operator.close()
    operator._http = httpx.Client(base_url="http://test", transport=httpx.MockTransport(answer))
    assert [info.run for info in operator.runs()] == [f"x-{number}" for number in range(5)]
    assert [info.run for info in operator.runs(last=3)] == ["x-2", "x-3", "x-4"]
    assert [info.run for info in operator.runs("x-3", 3)] == ["x-0", "x-1", "x-2"]
    assert [one.client_id for one in operator.clients()] == [f"c-{number}" for number in range(4)]
    operator.close()


def test_url_with_an_invalid_port_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match="Invalid port: 'abc'"):
        Operator("http://127.0.0.1:abc", "t" * 43)
