"""Reads honest updates from the aggregator's test tap, for attackers with full knowledge."""

import asyncio

import httpx
from fastapi import HTTPException

from rampart_fl.shared.agent.http_client import bearer, httpx_errors
from rampart_fl.shared.runtime.retries import RETRIED, TemporaryFailure


class Tap:
    """Reads updates from the aggregator's test tap, once per round for all members.

    Args:
        url: URL of the aggregator.
        token: token of the tap.
        patience: seconds to wait for honest updates.
    """

    def __init__(self, url: str, token: str, patience: float) -> None:
        self._patience = patience
        self._http = httpx.AsyncClient(
            base_url=url,
            headers={"Authorization": bearer(token, "the tap's token")},
            timeout=httpx.Timeout(5, read=patience + 60),
        )
        self._reading: dict[tuple[str, int, str], asyncio.Task[bytes]] = {}

    async def read(self, run: str, round_: int, kind: str, members: set[str], wait: bool) -> bytes:
        """Reads a round from the test tap; the response leaves out the updates of `members`."""
        if not wait:
            return await self._read(run, round_, kind, members, 0.0)
        for key in [k for k in self._reading if k[0] != run or k[1] < round_ - 2]:
            del self._reading[key]
        if (run, round_, kind) not in self._reading:
            fresh = self._read(run, round_, kind, members, self._patience)
            self._reading[run, round_, kind] = asyncio.create_task(fresh)
        reading = self._reading[run, round_, kind]
        try:
            return await asyncio.shield(reading)
        except HTTPException:
            # Drop the failed request, so that the next call reads the test tap again.
            if self._reading.get((run, round_, kind)) is reading:
                del self._reading[run, round_, kind]
            raise

    async def close(self) -> None:
        """Closes the connection."""
        await self._http.aclose()

    async def _read(
        self, run: str, round_: int, kind: str, members: set[str], patience: float
    ) -> bytes:
        params = {"without": ",".join(sorted(members)), "patience": str(patience)}
        path = f"/v1/runs/{run}/test-tap/rounds/{round_}/{kind}"
        try:
            with httpx_errors("the tap"):
                answer = await self._http.get(path, params=params)
        except TemporaryFailure as error:
            raise HTTPException(503, f"the tap does not answer: {error}") from None
        code = answer.status_code
        if code != 200:
            # Status 410 is final because the round is over; a status in RETRIED is temporary.
            status = 410 if code == 410 else 503 if code in RETRIED else 409
            raise HTTPException(status, f"the tap answers {code}: {answer.text[:200]}")
        return answer.content
