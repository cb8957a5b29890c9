"""Shortcuts: they answer as FastAPI's routes do, also to requests that are refused."""

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
    shortened = await ask(api.app, method, path, **all_headers)
    api.app.user_middleware = [m for m in api.app.user_middleware if m.cls is not Shortcuts]
    api.app.middleware_stack = None  # Starlette builds the stack again, without the shortcuts.
    assert shortened == await ask(api.app, method, path, **all_headers)
