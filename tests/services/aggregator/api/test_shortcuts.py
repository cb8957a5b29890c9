"""Shortcuts: they answer as FastAPI's routes do, also to requests that are refused."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from rampart_fl.services.aggregator.api.shortcuts import Shortcuts
from rampart_fl.services.aggregator.state.member_store import AnswerRecord
from rampart_fl.shared.protocol import wire
from tests.services.aggregator.api.conftest import RUN, Api
from tests.services.aggregator.api.routes.test_members import enrol
from tests.services.aggregator.api.routes.test_training import upload

pytestmark = pytest.mark.anyio
UPDATE = f"{RUN}/rounds/0/update"
GET, PUT = "GET", "PUT"


async def ask(app: Any, method: str, path: str, **headers: str) -> tuple[int, Any, str]:
    """The status, the body and the media type of an answer."""
    content = upload(3) if method == PUT else b""
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://test"
    ) as client:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = await client.request(method, path, headers=names, content=content)
    return answer.status_code, answer.json(), answer.headers["content-type"]


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        (GET, "/v1/ticket", {}),
        (GET, "/v1/ticket?run=test-1", {"prefer": "wait=soon"}),
        (GET, "/v1/ticket?run=nobody-1", {}),
        (GET, "/v1/ticket?run=No Such Run", {}),
        (GET, "/v1/ticket?run=test-1&away=true", {}),
        (GET, "/v1/ticket?away=false", {}),
        (GET, "/v1/ticket?away=1", {}),
        (GET, "/v1/ticket?away=perhaps", {}),
        (GET, "/v1/ticket?away=true", {"authorization": "Bearer nobodysnobodysnobodys"}),
        (GET, "/v1/ticket", {"authorization": ""}),
        (GET, "/v1/ticket", {"authorization": "Bearer nobodysnobodysnobodys"}),
        (PUT, "/v1/ticket", {}),
        (PUT, UPDATE, {"content_type": wire.MEDIA_TYPE}),
        (PUT, UPDATE, {"content_type": "text/plain"}),
        (PUT, UPDATE, {"authorization": "Bearer nobodysnobodysnobodys"}),
        (PUT, "/v1/runs/nobody-1/rounds/0/update", {"content_type": wire.MEDIA_TYPE}),
        (PUT, "/v1/runs/Nobody/rounds/0/update", {"content_type": wire.MEDIA_TYPE}),
        (PUT, f"{RUN}/rounds/7/update", {"content_type": wire.MEDIA_TYPE}),
        (PUT, f"{RUN}/rounds/1e3/update", {"content_type": wire.MEDIA_TYPE}),
        (PUT, f"{RUN}/rounds/0/guess", {"content_type": wire.MEDIA_TYPE}),
    ],
)
async def test_shortcut_gives_the_same_response_as_the_route(
    api: Api, live_run: Any, method: str, path: str, headers: dict[str, str]
) -> None:
    token = await enrol(api, "ada")
    await live_run.run.members.answer("ada", AnswerRecord(accept=True, at=0.0), 3)
    await live_run.open(0, ["bob"])
    all_headers = {"authorization": f"Bearer {token}", **headers}
    shortened = await ask(api.served, method, path, **all_headers)
    assert shortened == await ask(api.app, method, path, **all_headers)


async def test_shortcuts_bypass_the_application(api: Api) -> None:
    async def unused(*_: Any) -> None:
        raise AssertionError("the application was called")

    token = await enrol(api, "ada")
    shortcuts = Shortcuts(unused, api.runtime)
    headers = {"authorization": f"Bearer {token}"}
    assert (await ask(shortcuts, GET, "/v1/ticket", **headers))[0] == 200
    assert (await ask(shortcuts, PUT, UPDATE, **headers))[0] == 415


async def test_ticket_request_with_a_body_is_limited_like_every_other_request(api: Api) -> None:
    token = await enrol(api, "ada")
    headers = {"authorization": f"Bearer {token}"}
    for declared in ({"content-length": "100000"}, {}):
        transport = httpx.ASGITransport(api.served)

        async def body() -> AsyncIterator[bytes]:
            yield bytes(100_000)

        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            answer = await client.request(
                GET, "/v1/ticket", headers=headers | declared, content=body()
            )
        assert answer.status_code == 413


async def test_unexpected_error_in_a_shortcut_is_answered_and_logged(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: Any) -> None:
        raise ZeroDivisionError

    token = await enrol(api, "ada")
    monkeypatch.setattr(api.runtime, "await_conversion", broken)
    status, problem, media = await ask(
        api.served, GET, "/v1/ticket", authorization=f"Bearer {token}"
    )
    assert (status, media) == (500, "application/problem+json")
    assert problem["detail"] == "an internal error; the log has the cause"
    assert "unexpected error" in caplog.text


async def test_uploads_through_a_shortcut_are_timed_but_long_polls_are_not(api: Api) -> None:
    token = await enrol(api, "ada")
    headers = {"authorization": f"Bearer {token}"}
    await ask(api.served, PUT, UPDATE, **headers)
    await ask(api.served, GET, "/v1/ticket", **headers)

    def counted(route: str, status: str) -> float | None:
        labels = {"route": route, "status": status}
        registry = api.runtime.metrics.registry
        return registry.get_sample_value("rampart_request_seconds_count", labels)

    assert counted("/v1/runs/{run}/rounds/{round}/{kind}", "415") == 1
    assert counted("/v1/ticket", "200") is None
