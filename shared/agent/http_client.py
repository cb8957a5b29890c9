"""HTTP with httpx: TLS, tokens, and functions that turn failed requests into errors.

All of Rampart's HTTP clients use `httpx_errors` and `check_answer`, so that all of them retry the
same kinds of failures. The delays between attempts are in shared/runtime/retries.py.
"""

import re
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from typing import Any

import httpx

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.runtime.retries import RETRIED, TemporaryFailure

SOFTWARE = f"rampart-fl/{version('rampart-fl')}"
"""The `User-Agent` header of clients' requests."""
TOKEN = re.compile(r"[!-~]([ -~]*[!-~])?")
"""Matches the tokens that a header can carry: printable ASCII, without spaces at either end."""


@cache
def _system() -> ssl.SSLContext:
    """The system's certificate authorities, read once because a process may host many clients."""
    return httpx.create_ssl_context()


def tls_context(ca: str | None) -> ssl.SSLContext:
    """The TLS context; it trusts the CA bundle, or the system's authorities if `ca` is None.

    Raises:
        ConfigurationError: the bundle cannot be read.
    """
    if ca is None:
        return _system()
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise ConfigurationError(f"CA bundle {ca!r}: {error.strerror or error}") from error


def bearer(token: str, whose: str) -> str:
    """The Authorization header's value for a token; error messages never contain the token.

    >>> bearer("secret", "the operator token")
    'Bearer secret'

    Raises:
        ConfigurationError: the token is empty, or contains a character that is not allowed, such as
            a line end.
    """
    if not TOKEN.fullmatch(token):
        raise ConfigurationError(
            f"{whose} is empty, or contains characters that are not allowed in a token"
        )
    return f"Bearer {token}"


@contextmanager
def httpx_errors(server: str) -> Iterator[None]:
    """Context manager that replaces httpx's errors with the errors of the retry policy.

    Args:
        server: the server's role and URL for error messages, such as `aggregator
            'http://localhost'`.
    Raises:
        ConfigurationError: the URL is not an HTTP URL.
        TemporaryFailure: the connection cannot be made or is lost, or the response is damaged.

    >>> with httpx_errors("aggregator 'http://localhost'"):
    ...     raise httpx.DecodingError("incorrect header check")
    Traceback (most recent call last):
    rampart_fl.shared.runtime.retries.TemporaryFailure: DecodingError: incorrect header check
    """
    try:
        yield
    except httpx.UnsupportedProtocol as error:
        raise ConfigurationError(f"{server}: {error}") from error
    except (httpx.TransportError, httpx.DecodingError) as error:
        raise TemporaryFailure.after(error) from error


def check_answer(
    answer: httpx.Response, server: str, refusal: Callable[[httpx.Response], Exception]
) -> httpx.Response:
    """Returns the answer if its status reports success (2xx); otherwise, raises an error.

    A redirect is an error because the token must not be sent to another server.

    Args:
        answer: the answer. If the status is an error, the caller must read the answer's body before
            this call.
        server: the server's role and URL, for messages.
        refusal: makes the error that states why the server refused the request.
    Raises:
        ConfigurationError: the server redirects the request.
        TemporaryFailure: the status is in `RETRIED`.
        Exception: the error made by `refusal`, for every other error status.

    >>> busy = httpx.Response(503, text="busy")
    >>> check_answer(busy, "'http://localhost'", lambda answer: ValueError(detail_of(answer)))
    Traceback (most recent call last):
    rampart_fl.shared.runtime.retries.TemporaryFailure: 503 busy
    """
    if answer.is_success:
        return answer
    if answer.has_redirect_location:
        raise ConfigurationError(
            f"{server} redirects to {answer.headers['location']!r}: use a URL that does not "
            "redirect"
        )
    if answer.status_code in RETRIED:
        raise TemporaryFailure(str(refusal(answer)), answer.headers.get("retry-after", ""))
    raise refusal(answer)


def detail_of(answer: httpx.Response) -> str:
    """The reason in an error answer, in one line.

    The reason is the field `detail`. If this field is missing, the reason is the status code,
    followed by the start of the text. If the text is empty or HTML, the name of the status replaces
    the text.

    >>> detail_of(httpx.Response(409, json={"detail": "the run has ended"}))
    'the run has ended'
    >>> detail_of(httpx.Response(502, text="<html>"))
    '502 Bad Gateway'
    """
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        text = " ".join(answer.text[:200].split())
        if not text or text.startswith("<"):
            text = answer.reason_phrase
        return f"{answer.status_code} {text}"


class HttpClient(httpx.AsyncClient):
    """An `httpx.AsyncClient` that raises httpx's errors even if uvloop closes the connection."""

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """Sends a request in the same way as `httpx.AsyncClient`.

        Raises:
            httpx.TransportError: the connection cannot be made, or is lost.
        """
        try:
            return await super().send(request, **options)
        except AttributeError as error:
            # If uvloop has just closed the connection, anyio's call to getpeername raises an
            # AttributeError.
            if "getpeername" not in str(error):
                raise
            raise httpx.ReadError("a connection to the server was lost") from error
