"""The application in this process, over a running federation and a real Redis."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pydantic import SecretStr

from rampart_fl.services.aggregator.api.app import create_app
from rampart_fl.services.aggregator.api.runtime import Runtime
from rampart_fl.services.aggregator.api.shortcuts import Shortcuts
from rampart_fl.services.aggregator.settings import Settings
from rampart_fl.shared.protocol.operators import OperatorToken
from rampart_fl.shared.runtime.tokens import mint

RUN = "/v1/runs/test-1"
"""The path of the run in `live_run`."""


@dataclass
class Api:
    """An api process, and the token of its owner; `served` is the app behind the shortcuts."""

    app: FastAPI
    served: Shortcuts
    runtime: Runtime
    owner: str
    live_run: Any

    async def ask(
        self, method: str, path: str, token: str | None = None, **options: Any
    ) -> httpx.Response:
        """A request, by the owner unless a token is given."""
        headers = {"Authorization": f"Bearer {token or self.owner}", **options.pop("headers", {})}
        transport = httpx.ASGITransport(self.served, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.request(method, path, headers=headers, **options)

    async def add(self, name: str, role: str = "viewer", **options: Any) -> str:
        """The token of a new operator."""
        body = {"name": name, "role": role, **options}
        answer = await self.ask("POST", "/v1/operators", json=body)
        assert answer.status_code == 201, answer.text
        return OperatorToken.model_validate_json(answer.content).token


@pytest.fixture
async def api(live_run: Any, redis_url: str, tmp_path: Path) -> AsyncIterator[Api]:
    """An api process over the federation in `live_run`."""
    owner = mint()
    runtime = Runtime(
        Settings(
            operator_token=SecretStr(owner),
            redis_url=redis_url,
            namespace=live_run.stores.keys.prefix.strip("{}:"),
            blobs=str(tmp_path / "blobs"),
            blob_cache=tmp_path / "cache",
        )
    )
    app = create_app(runtime)
    yield Api(app, Shortcuts(app, runtime), runtime, owner, live_run)
    await runtime.close()


def slug(answer: httpx.Response) -> str:
    """The last part of a problem's type."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return str(answer.json()["type"]).removeprefix("urn:rampart:")
