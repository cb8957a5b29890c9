"""Connects to an aggregator, and retries requests while the aggregator is unavailable."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from httpx_sse import EventSource, ServerSentEvent, SSEError, connect_sse
from pydantic import TypeAdapter, ValidationError

from rampart_fl.services.console.connection.refusal_texts import explained
from rampart_fl.shared.agent.http_client import (
    bearer,
    check_answer,
    detail_of,
    httpx_errors,
    tls_context,
)
from rampart_fl.shared.errors import ConfigurationError, RampartError, Unavailable
from rampart_fl.shared.protocol.operators import WhoAmI
from rampart_fl.shared.runtime.retries import RETRIED, TemporaryFailure, repeat_blocking

T = TypeVar("T")
SILENCE = 60.0
"""Read timeout of the event stream, in seconds. Even an idle aggregator sends a tick every 2 s, so
a silence of `SILENCE` seconds means that the connection is lost."""


class OperatorRefused(RampartError):
    """The aggregator refused an operator's request."""

    slug = "refused"
    title = "Refused"


class StreamLost(Unavailable):
    """The connection of an open stream of events is lost."""


def segment(text: str) -> str:
    """Encodes an id or a name as one segment of a URL's path.

    The aggregator decodes the segment to the same text, so it can say what is wrong with an invalid
    id.

    Raises:
        OperatorRefused: the text cannot be a segment of a path, because the URL would then name
            another resource.

    >>> segment("client 7?")
    'client%207%3F'
    """
    if not text or "/" in text or text in (".", ".."):
        rule = 'is not empty, is neither "." nor "..", and contains no slash'
        raise OperatorRefused(f"{text!r} cannot be an id or a name: an id {rule}")
    return quote(text, safe="")


class AggregatorConnection:
    """Sends requests with an operator's token.

    Args:
        url: URL of the aggregator.
        token: the operator token.
        ca: path of a CA bundle for TLS.
        patience: seconds to wait for an aggregator that does not respond.
    """

    def __init__(self, url: str, token: str, ca: str | None = None, patience: float = 10.0) -> None:
        headers = {"Authorization": bearer(token, "the operator token")}
        self.url = url
        self._server = f"aggregator {url!r}"
        self._patience = patience
        try:
            self._http = httpx.Client(
                base_url=url, headers=headers, timeout=30, verify=tls_context(ca)
            )
        except httpx.InvalidURL as error:
            raise ConfigurationError(f"{self._server}: {error}") from error

    def close(self) -> None:
        """Closes the connection."""
        self._http.close()

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Sends one request, and retries it while the aggregator is unavailable.

        Raises:
            OperatorRefused: the aggregator refuses the request.
            Unavailable: every attempt within `patience` seconds failed.
            ConfigurationError: the URL is not an HTTP URL, redirects to another URL, or does not
                belong to an aggregator.
        """

        def attempt() -> httpx.Response:
            with httpx_errors(self._server):
                answer = self._http.request(method, path, **options)
            return check_answer(answer, self._server, self._refusal)

        return repeat_blocking(attempt, self.url, self._patience)

    def server_events(self, path: str, headers: Mapping[str, str]) -> Iterator[ServerSentEvent]:
        """Yields the events of a stream until the connection ends.

        Raises:
            OperatorRefused: the aggregator refuses the request.
            Unavailable: the stream cannot be opened within `patience` seconds.
            StreamLost: the connection is lost.
            ConfigurationError: the URL redirects, or does not belong to an aggregator.
        """
        try:
            with self._event_stream(path, headers) as source, httpx_errors(self._server):
                try:
                    yield from source.iter_sse()
                except SSEError as error:
                    # An SSEError is an httpx.TransportError: catch it before `httpx_errors` does.
                    raise self._stranger(f"GET {path}", str(error)) from None
        except TemporaryFailure as error:
            raise StreamLost(f"{self.url}{path}: {error}") from None

    @contextmanager
    def _event_stream(self, path: str, headers: Mapping[str, str]) -> Iterator[EventSource]:
        """Opens a stream of events; retries while the aggregator is unavailable.

        Raises:
            OperatorRefused, Unavailable, ConfigurationError: for the same reasons as in `request`.
        """
        timeout = httpx.Timeout(30, read=SILENCE)
        with ExitStack() as stack:

            def attempt() -> EventSource:
                with ExitStack() as opened, httpx_errors(self._server):
                    source = opened.enter_context(
                        connect_sse(self._http, "GET", path, headers=dict(headers), timeout=timeout)
                    )
                    if not source.response.is_success:
                        source.response.read()
                    check_answer(source.response, self._server, self._refusal)
                    stack.push(opened.pop_all())
                return source

            yield repeat_blocking(attempt, self.url, self._patience)

    def ask(self, message: type[T], method: str, path: str, **options: Any) -> T:
        """Sends one request, and validates the response as a message of the given type.

        Raises:
            OperatorRefused, Unavailable: for the same reasons as in `request`.
            ConfigurationError: as in `request`, or the response is not a message of this type.
        """
        answer = self.request(method, path, **options)
        try:
            return TypeAdapter(message).validate_json(answer.content)
        except ValidationError:
            text = f"{answer.status_code} {answer.text[:80]!r}"
            raise self._stranger(f"{method} {path}", text) from None

    def ready(self, patience: float = 60.0) -> None:
        """Waits until the aggregator is ready, for at most `patience` seconds."""
        usual, self._patience = self._patience, patience
        try:
            self.request("GET", "/readyz")
        finally:
            self._patience = usual

    def whoami(self) -> WhoAmI:
        """The name and the role of this connection's operator."""
        return self.ask(WhoAmI, "GET", "/v1/whoami")

    def _refusal(self, answer: httpx.Response) -> RampartError:
        """The error for an answer that reports a failure."""
        if "urn:rampart:" in answer.text or answer.status_code in RETRIED:
            return OperatorRefused(explained(answer))
        request = f"{answer.request.method} {answer.request.url.path}"
        return self._stranger(request, detail_of(answer))

    def _stranger(self, request: str, answer: str) -> ConfigurationError:
        """The error for an answer from a server that is not an aggregator."""
        return ConfigurationError(
            f"the server at {self.url!r} does not seem to be an aggregator: {request}: {answer}"
        )
