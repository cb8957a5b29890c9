"""An operator's connection to an aggregator."""

from collections.abc import Iterator
from typing import Any, TypeVar

import httpx
from httpx_sse import SSEError, connect_sse
from pydantic import TypeAdapter, ValidationError

from rampart_fl.shared.errors import ConfigurationError, RampartError, Unavailable
from rampart_fl.shared.experiment.eviction import Mode
from rampart_fl.shared.protocol.http_client import bearer, trusted
from rampart_fl.shared.protocol.messages import (
    ClientInfo,
    FederationStatus,
    JoinTokens,
    Proposal,
    RoundRecord,
)
from rampart_fl.shared.protocol.retries import RETRIED, Again, repeat_blocking

T = TypeVar("T")
SILENCE = 60.0
"""Seconds without a word after which a stream of events is given up; it has one every two."""


class OperatorRefused(RampartError):
    """The aggregator refused an operator's request."""

    slug = "refused"
    title = "Refused"


class Operator:
    """Reads status and records, and gives orders.

    Args:
        url: of the aggregator.
        token: the operator's.
        ca: path of a CA bundle for TLS.
        patience: seconds for which an aggregator that does not answer is waited for.
    """

    def __init__(self, url: str, token: str, ca: str | None = None, patience: float = 10.0) -> None:
        headers = {"Authorization": bearer(token, "the operator token")}
        self.url = url
        self._patience = patience
        try:
            self._http = httpx.Client(base_url=url, headers=headers, timeout=30, verify=trusted(ca))
        except httpx.InvalidURL as error:
            raise ConfigurationError(f"aggregator {url!r}: {error}") from error

    def close(self) -> None:
        """Closes the connection."""
        self._http.close()

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """One request; repeated while nobody answers."""

        def attempt() -> httpx.Response:
            try:
                answer = self._http.request(method, path, **options)
            except httpx.UnsupportedProtocol as error:
                raise ConfigurationError(f"aggregator {self.url!r}: {error}") from error
            except httpx.TransportError as error:
                raise Again.after(error) from error
            if answer.status_code < 400:
                return answer
            if answer.status_code in RETRIED:
                raise Again(_detail(answer), answer)
            raise OperatorRefused(_detail(answer))

        return repeat_blocking(attempt, self.url, self._patience)

    def _ask(self, message: type[T], method: str, path: str, **options: Any) -> T:
        """One request, with its answer as what it has to be."""
        answer = self.request(method, path, **options)
        try:
            return TypeAdapter(message).validate_json(answer.content)
        except ValidationError:
            raise ConfigurationError(
                f"{self.url!r} does not answer as an aggregator does: {method} {path}: "
                f"{answer.status_code} {answer.text[:80]!r}"
            ) from None

    def ready(self, patience: float = 60.0) -> None:
        """Returns once the aggregator is ready; waits at most so many seconds."""
        usual, self._patience = self._patience, patience
        try:
            self.request("GET", "/readyz")
        finally:
            self._patience = usual

    def status(self) -> FederationStatus:
        """Where the federation stands."""
        return self._ask(FederationStatus, "GET", "/v1/rounds/current")

    def rounds(self, since: int = 0, limit: int = 1000) -> list[RoundRecord]:
        """Records of finished rounds."""
        which = {"since": since, "limit": limit}
        return self._ask(list[RoundRecord], "GET", "/v1/rounds", params=which)

    def clients(self) -> list[ClientInfo]:
        """The roster."""
        return self._ask(list[ClientInfo], "GET", "/v1/clients")

    def evaluations(self) -> dict[str, dict[str, float]]:
        """What clients measured at the end."""
        return self._ask(dict[str, dict[str, float]], "GET", "/v1/evaluations")

    def mint(self, client_ids: list[str], lifetime: float = 86_400) -> JoinTokens:
        """Join tokens bound to these ids."""
        body = {"client_ids": client_ids, "lifetime": lifetime}
        return self._ask(JoinTokens, "POST", "/v1/join-tokens", json=body)

    def mint_unbound(self, count: int, lifetime: float = 86_400) -> JoinTokens:
        """Join tokens for whoever holds them."""
        body = {"count": count, "lifetime": lifetime}
        return self._ask(JoinTokens, "POST", "/v1/join-tokens", json=body)

    def decide(self, client: str, verb: str, reason: str) -> ClientInfo:
        """Evicts or reinstates a client; confirms or dismisses its proposal."""
        path = f"/v1/clients/{client}/{verb}"
        return self._ask(ClientInfo, "POST", path, json={"reason": reason})

    def revoke(self, client: str) -> None:
        """Ends a client's token at once."""
        self.request("DELETE", f"/v1/clients/{client}/token")

    def proposals(self) -> list[Proposal]:
        """The evictions that wait for an operator."""
        return self._ask(list[Proposal], "GET", "/v1/proposals")

    def switch(self, mode: Mode, reason: str) -> FederationStatus:
        """Sets how far decisions about clients may go."""
        body = {"mode": mode, "reason": reason}
        return self._ask(FederationStatus, "POST", "/v1/federation/mode", json=body)

    def steer(self, verb: str) -> FederationStatus:
        """Pauses, resumes or stops the federation."""
        return self._ask(FederationStatus, "POST", f"/v1/federation/{verb}")

    def events(self, after: str | None = None, ticks: bool = False) -> Iterator[dict[str, str]]:
        """Events as they happen, each with its id; ends when the connection does.

        Args:
            after: id of an event, to take up where one left.
            ticks: give an empty event, too, whenever nothing has happened for a while.
        """
        headers = {} if after is None else {"Last-Event-ID": after}
        timeout = httpx.Timeout(30, read=SILENCE)
        path = "/v1/events"
        try:
            with connect_sse(self._http, "GET", path, headers=headers, timeout=timeout) as source:
                if source.response.status_code >= 400:
                    source.response.read()
                    raise OperatorRefused(_detail(source.response))
                for event in source.iter_sse():
                    if event.event != "tick":
                        yield {"id": event.id, **event.json()}
                    elif ticks:
                        yield {}
        except SSEError as error:
            raise ConfigurationError(
                f"{self.url!r} does not answer as an aggregator does: GET {path}: {error}"
            ) from None
        except httpx.TransportError as error:
            raise Unavailable(f"{self.url}{path}: {type(error).__name__}: {error}") from None


def _detail(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError):
        return f"{answer.status_code} {answer.text[:200]}"
