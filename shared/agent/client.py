"""The client side of the HTTP API, version 1.

Clients send all their requests to an aggregator through this module. A failed request is retried
with increasing, jittered delays. The retries end if the request succeeds or is refused, or after
the time limit `patience`. A client therefore survives a restart of the aggregator.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx
import zstandard
from pydantic import BaseModel, RootModel, ValidationError

from rampart_fl.shared.agent.http_client import (
    SOFTWARE,
    HttpClient,
    bearer,
    check_answer,
    httpx_errors,
    tls_context,
)
from rampart_fl.shared.errors import ConfigurationError, RampartError
from rampart_fl.shared.protocol.messages import Joined, Receipt, Ticket
from rampart_fl.shared.protocol.runs import Acceptance
from rampart_fl.shared.protocol.wire import MEDIA_TYPE, RECEIPT_HEADER, TICKET_HEADER
from rampart_fl.shared.runtime.retries import repeat

READ = 120.0
"""Seconds to wait for the next bytes of a response; more if the request asks for a long delay."""
SPARE = 90.0
"""Minimum number of seconds that the client waits for a response, in addition to the delay that the
request asks for. An upload needs this time, because it can wait a minute until the aggregator reads
it."""
POLL = 30
"""Default number of seconds for which the aggregator may hold open a request for a ticket."""
PIECE = 1 << 20
TicketAndModel = tuple[Ticket, bytes | None]
"""A ticket and the bytes of its model; the bytes are None if no model was sent with the ticket."""
M = TypeVar("M", bound=BaseModel)
Tables = RootModel[dict[str, Any]]


class RequestRefused(RampartError):
    """The aggregator refused a request; retrying will not help.

    Args:
        code: HTTP status.
        slug: last part of `type` in the answer's problem details, such as "late".
        detail: the aggregator's explanation.
    """

    def __init__(self, code: int, slug: str, detail: str) -> None:
        super().__init__(f"{code} {slug}: {detail}")
        self.code = code
        self.reason = slug


@dataclass
class AggregatorClient:
    """One client's connection to the aggregator.

    Args:
        url: URL of the aggregator, such as `http://127.0.0.1:8440`.
        token: the client's token, an operator's token or a join token.
        patience: seconds for which requests to an unreachable aggregator are retried.
        verify: path of a CA bundle for TLS; by default, the system's authorities are trusted.
        compress: whether uploads are compressed with zstd.
        poll: seconds for which the aggregator may hold open a request for a ticket (long polling).
    """

    url: str
    token: str
    patience: float = 3600.0
    verify: str | None = None
    compress: bool = False
    poll: int = POLL
    next_token: str | None = None
    """The token that will replace `token`. If the aggregator refuses `token`, requests are repeated
    with `next_token`."""
    http: httpx.AsyncClient = field(init=False)

    def __post_init__(self) -> None:
        bearer(self.token, "the token")
        try:
            self.http = HttpClient(
                base_url=self.url,
                headers={"User-Agent": SOFTWARE},
                timeout=_timeout(READ),
                verify=tls_context(self.verify),
                limits=httpx.Limits(max_connections=8, max_keepalive_connections=4),
            )
        except httpx.InvalidURL as error:
            raise ConfigurationError(f"aggregator {self.url!r}: {error}") from error

    @property
    def _tokens(self) -> list[str]:
        return [self.token] if self.next_token is None else [self.token, self.next_token]

    async def close(self) -> None:
        """Closes the connections."""
        await self.http.aclose()

    async def request(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        json: Any = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
        wait: int = 0,
    ) -> httpx.Response:
        """Sends a request, and retries until the aggregator answers it.

        Args:
            method, path, content, json, headers, params: as in httpx.
            wait: seconds for which the aggregator may delay the response; the header `Prefer` must
                ask for the same delay.
        Raises:
            RequestRefused: the answer has an error status for which there are no retries.
            Unavailable: every attempt within `patience` seconds failed.
            ConfigurationError: the URL is not an HTTP URL, or the server redirects the request.
        """
        refused = set[str]()
        timeout = _timeout(max(READ, wait + SPARE))
        server = f"aggregator {self.url!r}"

        async def attempt() -> httpx.Response:
            while True:
                token = next(one for one in self._tokens if one not in refused)
                with httpx_errors(server):
                    answer = await self.http.request(
                        method,
                        path,
                        content=None if content is None else _pieces(content),
                        json=json,
                        params=params,
                        headers={"Authorization": bearer(token, "the token"), **(headers or {})},
                        timeout=timeout,
                    )
                if answer.status_code == 401:
                    refused.add(token)
                    if not refused.issuperset(self._tokens):
                        continue
                return check_answer(answer, server, _refusal)

        return await repeat(attempt, f"{self.url}{path}", self.patience)

    async def join(self, token_hash: str, client_id: str | None = None) -> Joined:
        """Registers a client; idempotent. The token of this connection must be a join token."""
        body = {"token_hash": token_hash, "client_id": client_id}
        answer = await self.request("POST", "/v1/clients", json=body)
        return self._read(answer, Joined)

    async def rotate(self, client_id: str, token_hash: str) -> Joined:
        """Replaces the client's token with the token whose hash is `token_hash`."""
        path, body = f"/v1/clients/{client_id}/token", {"token_hash": token_hash}
        return self._read(await self.request("PUT", path, json=body), Joined)

    async def experiment(self, run: str) -> dict[str, Any]:
        """The part of a run's experiment that clients need."""
        return self._read(await self.request("GET", f"/v1/runs/{run}/experiment"), Tables).root

    async def answer(
        self, run: str, accept: bool, reason: str = "", slot: int | None = None
    ) -> Acceptance:
        """Accepts or declines the offer of a run.

        Args:
            run: the run's id.
            accept: whether the client takes part.
            reason: why the client does not take part.
            slot: the slot that the client asks for; None if it takes any slot.
        """
        body = {"accept": accept, "reason": reason, "slot": slot}
        path = f"/v1/runs/{run}/acceptance"
        return self._read(await self.request("PUT", path, json=body), Acceptance)

    async def ticket(
        self,
        known: str | None,
        wait: int | None = None,
        run: str | None = None,
        away: bool = False,
    ) -> Ticket | None:
        """Waits for a ticket whose ETag differs from `known`; returns None on timeout."""
        answer = await self.ticket_and_model(known, "", wait, "application/json", run, away)
        return None if answer is None else answer[0]

    async def ticket_and_model(
        self,
        known: str | None,
        held: str,
        wait: int | None = None,
        accept: str = MEDIA_TYPE,
        run: str | None = None,
        away: bool = False,
    ) -> TicketAndModel | None:
        """Waits for the next ticket and its model; returns None on timeout.

        The aggregator omits the model if the client already has it.

        Args:
            known: ETag of the ticket that the client already has, if any.
            held: digest of the model that the client holds; "" if the client holds no model.
            wait: seconds for which the aggregator may hold the request open; `poll` by default.
            accept: media type of the answer; a JSON answer contains no model.
            run: the run in which the client takes part, if any.
            away: whether the client reports that it does not train now. Such a client counts as
                offline.
        """
        seconds = self._seconds(wait)
        headers = _request_headers(seconds, accept, held)
        if known is not None:
            headers["If-None-Match"] = f'"{known}"'
        params = {} if run is None else {"run": run}
        if away:
            params["away"] = "true"
        answer = await self.request(
            "GET", "/v1/ticket", headers=headers, params=params or None, wait=seconds
        )
        return None if answer.status_code == 204 else self._ticket_and_model(answer)

    async def model(self, run: str, name: str) -> bytes:
        """Downloads a run's model by digest or name; returns its safetensors bytes."""
        return (await self.request("GET", f"/v1/runs/{run}/models/{name}")).content

    async def upload(self, run: str, round_: int, kind: str, data: bytes) -> Receipt:
        """Uploads an update or a probe."""
        return self._read(await self._put(run, round_, kind, data, {}), Receipt)

    async def upload_and_wait(
        self, run: str, round_: int, kind: str, data: bytes, held: str, wait: int | None = None
    ) -> tuple[Receipt, TicketAndModel | None]:
        """Uploads an update or a probe, and waits for the next ticket and its model.

        Args:
            run, round_, kind, data: as in `upload`.
            held: digest of the model that the client holds; "" if the client holds no model.
            wait: seconds for which the aggregator may delay the answer; `poll` by default.
        Returns:
            The receipt, and the next ticket with its model. If no ticket is issued within `wait`
            seconds, the second value is None.
        """
        seconds = self._seconds(wait)
        wish = _request_headers(seconds, MEDIA_TYPE, held)
        answer = await self._put(run, round_, kind, data, wish, seconds)
        receipt = answer.headers.get(RECEIPT_HEADER)
        if receipt is None:
            return self._read(answer, Receipt), None
        return self._read(answer, Receipt, receipt), self._ticket_and_model(answer)

    async def _put(
        self,
        run: str,
        round_: int,
        kind: str,
        data: bytes,
        wish: Mapping[str, str],
        wait: int = 0,
    ) -> httpx.Response:
        headers = {"Content-Type": MEDIA_TYPE, **wish}
        if self.compress:
            data = zstandard.compress(data)
            headers["Content-Encoding"] = "zstd"
        headers["Content-Length"] = str(len(data))
        path = f"/v1/runs/{run}/rounds/{round_}/{kind}"
        return await self.request("PUT", path, content=data, headers=headers, wait=wait)

    async def evaluate(self, run: str, round_: int, metrics: Mapping[str, float]) -> Receipt:
        """Uploads the client's measurements of the final models."""
        body = {"metrics": dict(metrics)}
        path = f"/v1/runs/{run}/rounds/{round_}/evaluation"
        answer = await self.request("PUT", path, json=body)
        return self._read(answer, Receipt)

    async def heartbeat(self) -> None:
        """Sends a heartbeat, so that the aggregator treats this client as online."""
        await self.request("POST", "/v1/heartbeat")

    def _read(self, answer: httpx.Response, message: type[M], header: str | None = None) -> M:
        """Parses an answer as a message of the expected type.

        Args:
            answer: the answer.
            message: the type of the expected message.
            header: the header that contains the message; None if the body contains the message.
        Raises:
            ConfigurationError: the answer is not a message of this type, so the URL does not belong
                to an aggregator.
        """
        try:
            return message.model_validate_json(answer.content if header is None else header)
        except ValidationError:
            raise ConfigurationError(
                f"the server at {self.url!r} does not seem to be an aggregator: "
                f"{answer.request.method} {answer.request.url.path}: {answer.status_code} "
                f"{answer.text[:80]!r}"
            ) from None

    def _seconds(self, wait: int | None) -> int:
        return self.poll if wait is None else wait

    def _ticket_and_model(self, answer: httpx.Response) -> TicketAndModel:
        if (ticket := answer.headers.get(TICKET_HEADER)) is not None:
            return self._read(answer, Ticket, ticket), answer.content
        return self._read(answer, Ticket), None


def _timeout(read: float) -> httpx.Timeout:
    return httpx.Timeout(connect=5, read=read, write=120, pool=None)


def _request_headers(wait: int, accept: str, held: str) -> dict[str, str]:
    headers = {"Prefer": f"wait={wait}", "Accept": accept}
    return {**headers, "Rampart-Model": held} if held else headers


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    view = memoryview(content)
    for start in range(0, len(view), PIECE):
        yield bytes(view[start : start + PIECE])


def _refusal(answer: httpx.Response) -> RequestRefused:
    try:
        body = answer.json()
        slug, detail = str(body["type"]).rpartition(":")[2], str(body["detail"])
    except (ValueError, KeyError, TypeError):
        slug, detail = "unknown", answer.text[:200]
    return RequestRefused(answer.status_code, slug, detail)
