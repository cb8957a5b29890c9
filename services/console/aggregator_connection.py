"""A connection to an aggregator; retries requests while the aggregator is unavailable."""

from typing import Any, TypeVar

import httpx
from pydantic import TypeAdapter, ValidationError

from rampart_fl.shared.agent.http_client import bearer, tls_context
from rampart_fl.shared.errors import ConfigurationError, RampartError
from rampart_fl.shared.runtime.retries import RETRIED, TemporaryFailure, repeat_blocking

T = TypeVar("T")


class OperatorRefused(RampartError):
    """The aggregator refused an operator's request."""

    slug = "refused"
    title = "Refused"


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
        self._patience = patience
        try:
            self._http = httpx.Client(
                base_url=url, headers=headers, timeout=30, verify=tls_context(ca)
            )
        except httpx.InvalidURL as error:
            raise ConfigurationError(f"aggregator {url!r}: {error}") from error

    def close(self) -> None:
        """Closes the connection."""
        self._http.close()

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Sends one request, and retries it while the aggregator is unavailable."""

        def attempt() -> httpx.Response:
            try:
                answer = self._http.request(method, path, **options)
            except httpx.UnsupportedProtocol as error:
                raise ConfigurationError(f"aggregator {self.url!r}: {error}") from error
            except httpx.TransportError as error:
                raise TemporaryFailure.after(error) from error
            if answer.status_code < 400:
                return answer
            if answer.status_code in RETRIED:
                raise TemporaryFailure(detail_of(answer), answer.headers.get("retry-after", ""))
            raise OperatorRefused(detail_of(answer))

        return repeat_blocking(attempt, self.url, self._patience)

    def _ask(self, message: type[T], method: str, path: str, **options: Any) -> T:
        """Sends one request, and validates the response as a message of the given type."""
        answer = self.request(method, path, **options)
        try:
            return TypeAdapter(message).validate_json(answer.content)
        except ValidationError:
            raise ConfigurationError(
                f"{self.url!r} does not answer like an aggregator: {method} {path}: "
                f"{answer.status_code} {answer.text[:80]!r}"
            ) from None

    def ready(self, patience: float = 60.0) -> None:
        """Waits until the aggregator is ready, for at most `patience` seconds."""
        usual, self._patience = self._patience, patience
        try:
            self.request("GET", "/readyz")
        finally:
            self._patience = usual


def detail_of(answer: httpx.Response) -> str:
    """The reason that an error response gives."""
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError):
        return f"{answer.status_code} {answer.text[:200]}"
