"""Sends errors as `application/problem+json` (RFC 9457); limits every body except uploads."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from rampart_fl.services.aggregator.api.admission import check_length
from rampart_fl.services.aggregator.api.invalid_fields import describe
from rampart_fl.shared.errors import RampartError
from rampart_fl.shared.protocol.counts import INVALID_CLAIM
from rampart_fl.shared.protocol.messages import Problem
from rampart_fl.shared.protocol.refusals import (
    InvalidClaim,
    InvalidRequest,
    Malformed,
    MethodNotAllowed,
    NotFound,
    Refusal,
    SlowBody,
    TooLarge,
    UnsupportedMedia,
)

log = logging.getLogger(__name__)
SMALL_BODY = 65_536
"""Maximum size in bytes of a body that is not an upload."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def problem(error: RampartError, path: str) -> JSONResponse:
    """The HTTP response to an error."""
    body = Problem(
        type=f"urn:rampart:{error.slug}",
        title=error.title,
        status=error.status,
        detail=_text(error.detail[:2000]),
        instance=_text(path[:500]),
    )
    headers = {}
    if isinstance(error, Refusal) and error.retry_after is not None:
        headers["Retry-After"] = str(max(1, round(error.retry_after)))
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(
        body.model_dump(), error.status, headers, media_type="application/problem+json"
    )


def _text(text: str) -> str:
    """Replaces lone surrogates in a client's input, because UTF-8 cannot encode them."""
    return text.encode("utf-8", "replace").decode()


async def _rampart(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RampartError)
    if error.status >= 500:
        log.warning("%s: %s", error.title, error, extra={"path": request.url.path})
    return problem(error, request.url.path)


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    issues = error.errors()
    if any(issue["type"] == "json_invalid" for issue in issues):
        return problem(Malformed("the body is not JSON"), request.url.path)
    if any(issue["loc"] == ("body",) and isinstance(issue["input"], bytes) for issue in issues):
        # The input is still bytes, because FastAPI parses a body only if its content type is JSON.
        media = request.headers.get("content-type", "")[:80]
        unsupported = UnsupportedMedia(f"content type {media!r}; send application/json")
        return problem(unsupported, request.url.path)
    text = "; ".join(map(describe, issues[:5]))
    claims = any(issue["type"] == INVALID_CLAIM for issue in issues)
    refusal = InvalidClaim(text) if claims else InvalidRequest(text)
    return problem(refusal, request.url.path)


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    refusals = {404: NotFound("no such resource"), 405: MethodNotAllowed(request.method[:40])}
    refusal = refusals.get(error.status_code, Malformed("the body is not JSON"))
    answer = problem(refusal, request.url.path)
    answer.headers.update(error.headers or {})
    return answer


async def _gone(request: Request, error: Exception) -> JSONResponse:
    return problem(Malformed("the connection ended within the body"), request.url.path)


async def answer_error(request: Request, error: Exception) -> JSONResponse:
    """The response to an error in a shortcut (see `shortcuts`), which bypasses FastAPI."""
    kinds = {RampartError: _rampart, ClientDisconnect: _gone, Exception: _unexpected}
    handler = next(handler for kind, handler in kinds.items() if isinstance(error, kind))
    return await handler(request, error)


async def _unexpected(request: Request, error: Exception) -> JSONResponse:
    log.error("unexpected error", exc_info=error, extra={"path": request.url.path})
    return problem(RampartError("an internal error; the log has the cause"), request.url.path)


def add_problem_handlers(app: FastAPI) -> None:
    """Makes the app answer every error with a problem response."""
    app.add_exception_handler(RampartError, _rampart)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(Exception, _unexpected)


class SmallBodies:
    """Middleware that limits the size and the duration of every body that is not an upload.

    FastAPI's own setting `max_body_size` does not limit durations. When a body exceeds
    `max_body_size`, FastAPI responds in plain text, even if the application has an error handler.
    """

    def __init__(self, app: Any, seconds: float) -> None:
        self._app = app
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Reads a body within the limits, then calls the application; leaves uploads unread."""
        if scope["type"] != "http" or is_upload(scope["method"], scope["path"]):
            await self._app(scope, receive, send)
            return
        try:
            check_length(Headers(scope=scope).get("content-length", "0"), SMALL_BODY)
            messages = await self._read(receive)
        except Refusal as error:
            await problem(error, scope["path"])(scope, receive, send)
            return

        async def replay() -> MutableMapping[str, Any]:
            return messages.pop(0) if messages else await receive()

        await self._app(scope, replay, send)

    async def _read(self, receive: Receive) -> list[MutableMapping[str, Any]]:
        messages, size = [], 0
        try:
            async with asyncio.timeout(self._seconds):
                while True:
                    message = await receive()
                    messages.append(message)
                    size += len(message.get("body", b""))
                    if size > SMALL_BODY:
                        raise TooLarge(f"the body has more than {SMALL_BODY} bytes")
                    if not message.get("more_body", False):
                        return messages
        except TimeoutError:
            raise SlowBody(f"the body did not arrive within {self._seconds:g} seconds") from None


def is_upload(method: str, path: str) -> bool:
    """Whether a body is an update or an answer to a probe; both are as large as a model."""
    uploads = {"PUT": ("/update", "/probe"), "POST": ("/customize",)}
    return path.endswith(uploads.get(method, ()))
