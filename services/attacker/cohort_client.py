"""Connects a member to the cohort: the member sends its update, and gets all shared updates.

Legend: D parameters.
"""

import io
from dataclasses import dataclass

import httpx
import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from safetensors.numpy import load

from rampart_fl.shared.agent.client import RequestRefused
from rampart_fl.shared.agent.http_client import (
    HttpClient,
    bearer,
    check_answer,
    detail_of,
    httpx_errors,
)
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment.server import Server
from rampart_fl.shared.families.registry import explain
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.protocol.refusals import Late
from rampart_fl.shared.protocol.tap import REFERENCE, STARTED
from rampart_fl.shared.runtime.retries import repeat

PATIENCE = 120.0
"""Seconds to wait for a cohort that does not respond."""


@dataclass(frozen=True)
class HonestRound:
    """The part of a round that only an attacker with full knowledge sees.

    Args:
        updates: the honest clients' updates (D,), keyed by client.
        started: the models (D,) from which the honest clients trained, keyed by client.
        reference_D: the global model.
        server: the `server` table of the experiment.
    """

    updates: dict[str, NDArray[np.float32]]
    started: dict[str, NDArray[np.float32]]
    reference_D: NDArray[np.float32]
    server: Server


class CohortClient:
    """A member's connection to the cohort, for one run.

    Args:
        url: URL of the cohort.
        token: token of the cohort's members.
        member: the attacker's client id.
        run: the run.
    """

    def __init__(self, url: str, token: str, member: str, run: str) -> None:
        self._member = member
        self._run = f"/runs/{run}"
        self.gone = 0
        """Number of members that had left the run at the last exchange."""
        self._http = HttpClient(
            base_url=url,
            headers={"Authorization": bearer(token, "the cohort token")},
            timeout=httpx.Timeout(5, read=300),
        )

    async def share(
        self,
        round_: int,
        kind: str,
        update_D: NDArray[np.float32],
        sent_D: NDArray[np.float32],
    ) -> None:
        """Shares an honest update and the model from which the client trained."""
        both = update_D.tobytes() + sent_D.tobytes()
        await self._send("PUT", f"{self._run}/rounds/{round_}/{kind}/{self._member}", both)

    async def exchange(
        self,
        round_: int,
        kind: str,
        update_D: NDArray[np.float32],
        sent_D: NDArray[np.float32],
        wait: bool,
    ) -> dict[str, tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """Shares an update and a model; returns the update and the model of each member.

        The result is keyed and sorted by client id.
        """
        path = f"{self._run}/rounds/{round_}/{kind}"
        query = f"wait={str(wait).lower()}&member={self._member}"
        data = b""
        exchanged: dict[str, NDArray[np.float32]] = {}
        # If the cohort restarts after the PUT, it loses the update. The response to the GET then
        # lacks this member's update, so the member repeats both requests.
        while self._member not in exchanged:
            await self.share(round_, kind, update_D, sent_D)
            answer = await self._send("GET", f"{path}?{query}")
            data = answer.content
            exchanged = load(data)
        _, head = wire.parse_header(io.BytesIO(data), len(data))
        self.gone = int(head["__metadata__"]["gone"])
        return {member: _halves(exchanged[member]) for member in sorted(exchanged)}

    async def honest(self, round_: int, kind: str, wait: bool) -> HonestRound:
        """Gets the honest part of a round, which the cohort reads from the aggregator's test tap.

        Raises:
            ConfigurationError: this version of Rampart cannot parse the aggregator's `server`
                table.
        """
        path = f"{self._run}/rounds/{round_}/{kind}/honest?wait={str(wait).lower()}"
        answer = await self._send("GET", path)
        data = answer.content
        _, head = wire.parse_header(io.BytesIO(data), len(data))
        vectors = load(data)
        reference_D = vectors.pop(REFERENCE)
        clients = sorted(name for name in vectors if not name.startswith(STARTED))
        try:
            server = Server.model_validate_json(head["__metadata__"]["server"])
        except ValidationError as error:
            raise ConfigurationError(
                "this version of Rampart cannot read the aggregator's `server` table from the test "
                f"tap: {explain(error, Server)}"
            ) from None
        return HonestRound(
            {client: vectors[client] for client in clients},
            {client: vectors[STARTED + client] for client in clients},
            reference_D,
            server,
        )

    async def report_absence(self, round_: int) -> None:
        """Informs the cohort that this member was not selected for a round."""
        await self._send("PUT", f"{self._run}/rounds/{round_}/absent/{self._member}")

    async def close(self) -> None:
        """Closes the connection."""
        await self._http.aclose()

    async def leave(self) -> None:
        """Informs the cohort that this member has left the run."""
        await self._send("PUT", f"{self._run}/gone/{self._member}")

    async def _send(self, method: str, path: str, content: bytes | None = None) -> httpx.Response:
        """Sends one request, and repeats it while the cohort is unavailable.

        Raises:
            RequestRefused: the round is over.
            ConfigurationError: the URL or the token is wrong, or the cohort refuses the request.
            Unavailable: the cohort was still unavailable after `PATIENCE` seconds.
        """
        where = f"cohort {self._http.base_url}"

        def refusal(answer: httpx.Response) -> RequestRefused | ConfigurationError:
            if answer.status_code == Late.status:
                return RequestRefused(Late.status, Late.slug, detail_of(answer))
            return ConfigurationError(f"{where}: {answer.status_code}: {detail_of(answer)}")

        async def attempt() -> httpx.Response:
            with httpx_errors(where):
                answer = await self._http.request(method, path, content=content)
            return check_answer(answer, where, refusal)

        return await repeat(attempt, where, PATIENCE)


def _halves(both_2D: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Splits a vector (2D,) into an update and the model that the update started from."""
    update_D, sent_D = np.split(both_2D, 2)
    return update_D, sent_D
