"""The application in process: problems, small bodies, the OpenAPI document, probes."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pydantic import BaseModel

from rampart_fl.services.aggregator.api.app import create_app
from rampart_fl.services.aggregator.api.problems import SmallBodies, add_problem_handlers
from rampart_fl.services.aggregator.api.runtime import Runtime
from rampart_fl.services.aggregator.settings import Settings
from rampart_fl.shared.errors import (
    ConfigurationError,
    PreconditionError,
    RampartError,
    Unavailable,
)
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.protocol import refusals, wire
from rampart_fl.shared.protocol.messages import ClientReport, Message

pytestmark = pytest.mark.anyio
TOKEN = "operators-own-token"


class Body(BaseModel):
    number: int


def tiny_app(error: Exception | None = None) -> FastAPI:
    app = FastAPI(redirect_slashes=False)
    add_problem_handlers(app)
    app.add_middleware(SmallBodies, seconds=0.05)

    @app.post("/x/{place}")
    async def post(place: int, body: Body) -> int:
        if error is not None:
            raise error
        return place + body.number

    return app


async def ask(app: Any, method: str = "POST", path: str = "/x/1", **options: Any) -> httpx.Response:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.request(method, path, **options)


def slug(answer: httpx.Response) -> str:
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert set(body) == {"type", "title", "status", "detail", "instance"}
    assert body["status"] == answer.status_code
    return str(body["type"]).removeprefix("urn:rampart:")


# -- problems --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status", "name"),
    [
        (refusals.Late("x"), 410, "late"),
        (refusals.TooMany("x", retry_after=0.2), 429, "too-many-requests"),
        (PreconditionError("n=3, f=2"), 422, "precondition-failed"),
        (Unavailable("x"), 503, "unavailable"),
        (RampartError("x"), 500, "internal-error"),
        (ZeroDivisionError("secret"), 500, "internal-error"),
    ],
)
async def test_every_error_is_answered_with_a_problem_document(
    error: Exception, status: int, name: str
) -> None:
    answer = await ask(tiny_app(error), json={"number": 1})
    assert (answer.status_code, slug(answer)) == (status, name)
    assert "secret" not in answer.text, "what went wrong inside stays in the log"
    if status == 429:
        assert answer.headers["retry-after"] == "1"


@pytest.mark.parametrize(
    ("options", "status", "name"),
    [
        ({"content": b"{"}, 400, "malformed"),
        ({"content": b"[" * 50_000}, 400, "malformed"),
        ({"content": b'{"number": "\xff"}'}, 400, "malformed"),
        ({"json": {"number": "x"}}, 422, "invalid-request"),
        ({"json": {}}, 422, "invalid-request"),
        ({"path": "/x/one", "json": {"number": 1}}, 422, "invalid-request"),
        ({"content": bytes(70_000)}, 413, "too-large"),
        ({"path": "/x/1/"}, 404, "not-found"),
        ({"path": "/y"}, 404, "not-found"),
        ({"method": "DELETE"}, 405, "method-not-allowed"),
        ({"headers": {"Content-Length": "1e3"}}, 400, "malformed"),
        ({"headers": {"Content-Length": "9" * 5000}}, 400, "malformed"),
    ],
)
async def test_framework_errors_are_answered_with_a_problem_document(
    options: dict[str, Any], status: int, name: str
) -> None:
    headers = {"Content-Type": "application/json", **options.pop("headers", {})}
    answer = await ask(tiny_app(), headers=headers, **options)
    assert (answer.status_code, slug(answer)) == (status, name)


async def test_invalid_or_long_client_text_does_not_break_error_responses() -> None:
    answer = await ask(tiny_app(refusals.Malformed("half \ud800 a pair")), json={"number": 1})
    assert answer.json()["detail"] == "half ? a pair"
    long = await ask(tiny_app(refusals.Malformed("x" * 10**6)), json={"number": 1})
    assert len(long.content) < 5000


async def test_slow_small_body_is_refused() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        import asyncio

        yield b'{"number"'
        await asyncio.sleep(0.2)
        yield b": 1}"

    headers = {"Content-Type": "application/json"}
    answer = await ask(tiny_app(), content=pieces(), headers=headers)
    assert (answer.status_code, slug(answer)) == (408, "slow-body")


async def test_small_body_reaches_the_route_unchanged() -> None:
    assert (await ask(tiny_app(), json={"number": 41})).json() == 42


# -- the OpenAPI document --------------------------------------------------------------------------


@pytest.fixture
async def runtime(redis_url: str, tmp_path: Path) -> AsyncIterator[Runtime]:
    """The parts of a process without a federation."""
    runtime = Runtime(
        Settings(
            operator_token=TOKEN,
            redis_url=redis_url,
            namespace="openapi",
            blobs=str(tmp_path / "blobs"),
            blob_cache=tmp_path / "cache",
        )
    )
    yield runtime
    await runtime.close()


def references(node: Any) -> Iterator[str]:
    """Every $ref of a document."""
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            yield from references(child)


async def test_openapi_document_is_complete_and_consistent(runtime: Runtime) -> None:
    document = create_app(runtime).openapi()
    assert document["openapi"].startswith("3.1")
    for reference in references(document):
        result: Any = document
        for part in reference.removeprefix("#/").split("/"):
            result = result[part]
    operations = {
        f"{method.upper()} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert len(operations) >= 30
    ids = [operation["operationId"] for operation in operations.values()]
    assert len(set(ids)) == len(ids)
    for name, operation in operations.items():
        assert operation["summary"], name
        assert operation.get("description"), name
        assert any(code.startswith("2") for code in operation["responses"]), name
        for parameter in re.findall(r"\{(\w+)\}", name):
            named = {p["name"] for p in operation.get("parameters", []) if p["in"] == "path"}
            assert parameter in named, name
        for declared in operation.get("parameters", []):
            choices = declared["schema"].get("enum")
            assert not declared["required"] or choices or declared["schema"].get("examples"), name
    linked = [
        (name, link["operationId"], link.get("parameters", {}))
        for name, operation in operations.items()
        for response in operation["responses"].values()
        for link in response.get("links", {}).values()
    ]
    by_id = {operation["operationId"]: operation for operation in operations.values()}
    assert {name for name, _, _ in linked} >= {
        "POST /v1/runs",
        "POST /v1/clients",
        "GET /v1/ticket",
    }
    for name, target, parameters in linked:
        known = {p["name"] for p in by_id[target].get("parameters", [])}
        assert set(parameters) <= known, (name, target)
    public = {"GET /healthz", "GET /readyz", "GET /metrics"}
    assert {name for name, o in operations.items() if "security" not in o} == public
    upload = operations["PUT /v1/runs/{run}/rounds/{round}/{kind}"]
    assert "application/vnd.safetensors" in upload["requestBody"]["content"]


async def test_openapi_describes_uploads_and_the_headers_of_responses(runtime: Runtime) -> None:
    paths = create_app(runtime).openapi()["paths"]
    upload = paths["/v1/runs/{run}/rounds/{round}/{kind}"]["put"]
    body = upload["requestBody"]["content"][wire.MEDIA_TYPE]["schema"]
    metadata = body["x-safetensors-metadata"]
    report = metadata["properties"]["report"]
    assert metadata["required"] == ["report"]
    assert {"samples", "metrics", "diverged"} <= report["contentSchema"]["properties"].keys()
    assert ClientReport.model_validate_json(report["examples"][0]).samples == 200
    headers = {p["name"]: p for p in upload["parameters"] if p["in"] == "header"}
    assert headers["Content-Encoding"]["schema"]["enum"] == ["identity", "zstd"]
    done = upload["responses"]["200"]
    assert done["content"].keys() == {"application/json", wire.MEDIA_TYPE}
    answers = done["content"]["application/json"]["schema"]["anyOf"]
    assert [one["$ref"].split("/")[-1] for one in answers] == ["Receipt", "Ticket"]
    assert done["headers"].keys() == {"ETag", wire.TICKET_HEADER, wire.RECEIPT_HEADER}
    for path, status, named in [
        ("/v1/ticket", "200", {"ETag", wire.TICKET_HEADER}),
        ("/v1/ticket", "204", {"ETag"}),
        ("/v1/runs/{run}/models/{name}", "200", {"ETag"}),
        ("/v1/runs/{run}/models/{name}", "304", {"ETag"}),
        ("/v1/runs/{run}/rounds/{round}/weights", "200", {"ETag"}),
    ]:
        assert paths[path]["get"]["responses"][status]["headers"].keys() == named, path


async def test_openapi_says_that_a_client_learns_when_to_retry(runtime: Runtime) -> None:
    for path, methods in create_app(runtime).openapi()["paths"].items():
        for method, operation in methods.items():
            refused = operation["responses"]["429"]
            assert refused["description"].count(refusals.TooMany.slug) == 1, (method, path)
            header = refused["headers"]["Retry-After"]
            assert header["required"] and header["schema"]["type"] == "integer", (method, path)
            others = {code for code, one in operation["responses"].items() if "headers" in one}
            assert {code for code in others if code >= "400"} == {"429"}, (method, path)


async def test_openapi_describes_both_forms_of_an_experiment(runtime: Runtime) -> None:
    answer = create_app(runtime).openapi()["paths"]["/v1/runs/{run}/experiment"]["get"]["responses"]
    schema = answer["200"]["content"]["application/json"]["schema"]
    whole = Experiment.load("digits-benign")
    of_operator, of_client = whole.tables().keys(), whole.client_part().keys()
    assert set(schema["required"]) <= of_operator & of_client
    assert schema["properties"].keys() <= of_operator | of_client | {"initial"}
    for name, about in schema["properties"].items():
        for_whom = about.get("description", "").rpartition("; for ")[2]
        if for_whom == "clients":
            assert name in {*of_client, "initial"} - of_operator
        elif for_whom == "operators":
            assert name in of_operator - of_client
        else:
            assert name in of_operator & of_client


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_openapi_lists_no_errors_about_tokens_where_none_is_needed(
    runtime: Runtime, path: str
) -> None:
    operation = create_app(runtime).openapi()["paths"][path]["get"]
    assert not {"401", "403"} & operation["responses"].keys()
    assert {"200", "503"} <= operation["responses"].keys()
    assert (await ask(create_app(runtime), "GET", path)).status_code in {200, 503}


def kinds_of(message: type[Message]) -> Iterator[type[Message]]:
    """A message and all that derive from it."""
    yield message
    for kind in message.__subclasses__():
        yield from kinds_of(kind)


async def test_every_request_body_has_a_valid_example(runtime: Runtime) -> None:
    document = create_app(runtime).openapi()
    bodies = {
        content["schema"]["$ref"].split("/")[-1]
        for methods in document["paths"].values()
        for operation in methods.values()
        for kind, content in operation.get("requestBody", {"content": {}})["content"].items()
        if kind == "application/json"
    }
    assert bodies >= {"ReasonBody", "Evaluation", "ModeChange", "TokenChange", "RunRequest"}
    messages = {message.__name__: message for message in kinds_of(Message)}
    for name in bodies:
        fields = document["components"]["schemas"][name]["properties"]
        bare = [field for field, about in fields.items() if not about.get("examples")]
        assert not bare, name
        body = {field: about["examples"][0] for field, about in fields.items()}
        assert messages[name].model_validate(body).model_dump(mode="json") == body


async def test_openapi_document_is_served_without_a_docs_page(runtime: Runtime) -> None:
    app = create_app(runtime)
    assert (await ask(app, "GET", "/openapi.json")).json() == app.openapi()
    for path in ("/docs", "/redoc"):
        assert (await ask(app, "GET", path)).status_code == 404


async def test_every_error_is_documented_in_openapi(runtime: Runtime) -> None:
    document = create_app(runtime).openapi()
    documented: dict[str, set[str]] = {}
    for methods in document["paths"].values():
        for operation in methods.values():
            for status, response in operation["responses"].items():
                for name in re.findall(r"urn:rampart:([a-z-]+)", response["description"]):
                    documented.setdefault(name, set()).add(status)
                    content = response["content"]["application/problem+json"]
                    assert content["schema"]["title"] == "Problem"
    known = {
        error.slug: {str(error.status)}
        for error in vars(refusals).values()
        if isinstance(error, type) and issubclass(error, refusals.Refusal)
    }
    bases = {"refused", "method-not-allowed"}  # The base class; and what has no route.
    assert {name: documented.get(name) for name in known if name not in bases} == {
        name: statuses for name, statuses in known.items() if name not in bases
    }


# -- probes ----------------------------------------------------------------------------------------


async def test_readiness_probe_names_the_missing_condition(runtime: Runtime) -> None:
    app = create_app(runtime)
    assert (await ask(app, "GET", "/healthz")).json() == {"status": "alive"}
    answer = await ask(app, "GET", "/readyz")
    assert (answer.status_code, slug(answer)) == (503, "unavailable")
    assert "taken over" in answer.json()["detail"]
    runtime.hub.close()
    assert "stopping" in (await ask(app, "GET", "/readyz")).json()["detail"]


async def test_process_without_redis_is_alive_but_not_ready(tmp_path: Path) -> None:
    settings = {"operator_token": TOKEN, "redis_url": "redis://127.0.0.1:1/0"}
    runtime = Runtime(Settings(**settings, blobs=str(tmp_path / "blobs"), blob_cache=tmp_path))
    runtime.stores.redis.client.connection_pool.connection_kwargs["retry"]._retries = 0
    app = create_app(runtime)
    assert (await ask(app, "GET", "/healthz")).status_code == 200
    answer = await ask(app, "GET", "/readyz")
    assert (answer.status_code, slug(answer)) == (503, "unavailable")
    metrics = await ask(app, "GET", "/metrics")
    assert metrics.status_code == 200
    assert "rampart_redis_up 0.0" in metrics.text
    token = {"Authorization": f"Bearer {TOKEN}"}
    status = await ask(app, "GET", "/v1/runs", headers=token)
    assert (status.status_code, slug(status)) == (503, "unavailable")
    await runtime.close()


# -- schemas ---------------------------------------------------------------------------------------


@pytest.fixture
async def stored(runtime: Runtime) -> AsyncIterator[Callable[[str], Awaitable[None]]]:
    """Pretends that a version with this schema has written the state."""
    redis, key = runtime.stores.redis.client, runtime.stores.keys.schema

    async def write(schema: str) -> None:
        await redis.set(key, schema)

    yield write
    await redis.delete(key)


async def test_request_times_out_with_503_during_a_schema_conversion(
    runtime: Runtime,
    stored: Callable[[str], Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rampart_fl.services.aggregator.api.runtime.CONVERSION", 0.01)
    await stored("2")
    app, owner = create_app(runtime), {"Authorization": f"Bearer {TOKEN}"}
    upload = "/v1/runs/digits-1/rounds/0/update"
    for method, path in (("GET", "/v1/runs"), ("GET", "/v1/ticket"), ("PUT", upload)):
        answer = await ask(app, method, path, headers=owner)
        assert (answer.status_code, slug(answer)) == (503, "unavailable")
        assert "Redis holds schema 2" in answer.json()["detail"]
    assert (await ask(app, "GET", "/readyz")).status_code == 200, "so that a rollout goes on"
    await stored("3")
    assert (await ask(app, "GET", "/v1/runs", headers=owner)).json() == []


async def test_state_of_a_newer_schema_is_refused(
    runtime: Runtime, stored: Callable[[str], Awaitable[None]]
) -> None:
    await stored("4")
    app = create_app(runtime)
    for path in ("/v1/runs", "/readyz"):
        answer = await ask(app, "GET", path)
        assert (answer.status_code, slug(answer)) == (503, "unavailable")
        assert "use the version of Rampart that wrote this state" in answer.json()["detail"]
    with pytest.raises(ExceptionGroup) as raised:
        await runtime.hub.run()
    assert raised.group_contains(ConfigurationError, match="Redis holds schema 4")
