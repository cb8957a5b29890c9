"""The cohort: a process through which colluders exchange updates without the aggregator.

All attackers are members of the cohort, even an attacker that does not use the other attackers'
updates. In each round, an attacker shares two vectors: its honest update, and the model that it
received from the aggregator. After sharing, a colluder waits for the other members of the cohort. A
member that is not selected for the round reports its absence to the cohort. A round is complete
when every member has shared an update, is absent, or has left. Before the training, the aggregator
may ask some members for a probe. Members share these probes in a separate exchange. A member that
was not asked for a probe counts as absent from this exchange. A timeout limits the wait for members
that report nothing.

Legend: M members that shared an update, D parameters.
"""

import asyncio
import logging
import secrets
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np
import uvicorn
from fastapi import Depends, FastAPI, Header, HTTPException, Request, Response
from pydantic import Field, SecretStr, model_validator
from pydantic_settings import SettingsConfigDict
from safetensors.numpy import save

from rampart_fl.services.attacker.tap import Tap
from rampart_fl.shared.runtime.process import ServiceSettings

log = logging.getLogger(__name__)
Kind = Literal["train", "probe"]
LARGEST = 1 << 31
PAIR = 8
"""Number of bytes shared per parameter: one float32 of the update, and one of the model."""


class CohortSettings(ServiceSettings):
    """Settings of the cohort's process; RAMPART_COHORT_<FIELD> sets a field."""

    model_config = SettingsConfigDict(env_prefix="RAMPART_COHORT_")

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(default=8450, ge=0, le=65_535)
    """Port to listen on."""
    token: SecretStr = Field(min_length=16)
    """Token with which members authenticate."""
    members: int = Field(ge=1)
    """Number of all attackers, including those that do not collude. Every attacker needs the
    setting RAMPART_COHORT."""
    patience: float = Field(default=60.0, gt=0)
    """Maximum time in seconds for which a round waits for members that report nothing."""
    tap: str | None = None
    """URL of an aggregator with a test tap; needed for attacks with full knowledge."""
    tap_token: SecretStr | None = None
    """Token of the test tap, which is the value of RAMPART_TEST_TAP in the aggregator."""

    @model_validator(mode="after")
    def _token_for_the_tap(self) -> "CohortSettings":
        if (self.tap is None) != (self.tap_token is None):
            raise ValueError("set both RAMPART_COHORT_TAP and RAMPART_COHORT_TAP_TOKEN, or neither")
        return self


@dataclass
class SharedRound:
    """The updates that members shared in one round for tickets of one kind."""

    shared: dict[str, bytes] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class SharedUpdates:
    """The updates that members have shared, keyed by run, round and kind of ticket.

    Args:
        members: number of attackers whose reports each round waits for.
        patience: maximum time in seconds for which a round waits for members that report nothing.
    """

    def __init__(self, members: int, patience: float) -> None:
        self._members = members
        self._patience = patience
        self._rounds: dict[tuple[str, int, str], SharedRound] = defaultdict(SharedRound)
        self._gone: dict[str, set[str]] = defaultdict(set)
        """The members that have left, keyed by run."""
        self._known: dict[str, set[str]] = defaultdict(set)
        """The members that have reported in any round, keyed by run."""

    def share(self, run: str, round_: int, kind: str, member: str, update: bytes) -> None:
        """Stores what a member shares in a round; replaces what it shared earlier in this round.

        Raises:
            ValueError: the bytes cannot be an update followed by a model, or the other members
                shared a different number of bytes.
        """
        shared_round = self._rounds[run, round_, kind]
        sizes = {len(other) for name, other in shared_round.shared.items() if name != member}
        if not update or len(update) % PAIR or sizes - {len(update)}:
            raise ValueError(
                f"this member shared {len(update)} bytes; the size must be a positive multiple of "
                f"{PAIR}, and equal for all members (other members shared {sorted(sizes)})"
            )
        shared_round.shared[member] = update
        self._known[run].add(member)
        # If the member had left the run, an operator has reinstated it.
        self._gone[run].discard(member)
        shared_round.absent.discard(member)
        shared_round.changed.set()
        if kind == "train":
            # A client is not probed after it has trained in the round, so the other members need
            # not wait for its probe.
            self._mark_absent(run, round_, "probe", member)
        for key in [k for k in self._rounds if k[0] != run or k[1] < round_ - 2]:
            del self._rounds[key]
        for kept in (self._gone, self._known):
            for former in kept.keys() - {run}:
                del kept[former]

    def mark_absent(self, run: str, round_: int, member: str) -> None:
        """Records that a member does not take part in a round."""
        for kind in ("train", "probe"):
            self._mark_absent(run, round_, kind, member)

    def leave(self, run: str, member: str) -> None:
        """Records that a member has left a run."""
        self._gone[run].add(member)
        self._known[run].add(member)
        for shared_round in self._rounds.values():
            shared_round.changed.set()

    async def gather(
        self, run: str, round_: int, kind: str, wait: bool, member: str | None = None
    ) -> dict[str, bytes]:
        """Waits until a round is complete or the timeout has passed; returns all shared updates.

        If the cohort has no update of `member`, for example after a restart, the function returns
        immediately. The member then shares its update again.
        """
        shared_round = self._rounds[run, round_, kind]
        wait = wait and (member is None or member in shared_round.shared)
        try:
            async with asyncio.timeout(self._patience):
                while wait and not self._complete(run, shared_round):
                    shared_round.changed.clear()
                    await shared_round.changed.wait()
        except TimeoutError:
            log.warning(
                "the wait for members timed out; continuing with the updates of %d of %d members",
                len(shared_round.shared),
                self._members,
                extra={"round": round_},
            )
        return dict(shared_round.shared)

    def gone(self, run: str) -> int:
        """Number of members that have left a run.

        A member that leaves before the end of the run was evicted.
        """
        return len(self._gone[run])

    def known(self, run: str) -> set[str]:
        """Members that have shared an update, were absent, or left, in any round of a run.

        All rounds count: under the buffered policy, a round may include the upload of a member that
        shared its update in an earlier round.
        """
        return set(self._known[run])

    def _mark_absent(self, run: str, round_: int, kind: str, member: str) -> None:
        shared_round = self._rounds[run, round_, kind]
        self._known[run].add(member)
        self._gone[run].discard(member)
        if member not in shared_round.shared:
            shared_round.absent.add(member)
            shared_round.changed.set()

    def _complete(self, run: str, shared_round: SharedRound) -> bool:
        reported = shared_round.shared.keys() | shared_round.absent | self._gone[run]
        return len(reported) >= self._members


def create_app(settings: CohortSettings) -> FastAPI:
    """The cohort's HTTP application."""
    cohort = SharedUpdates(settings.members, settings.patience)
    tap = None
    if settings.tap is not None and settings.tap_token is not None:
        tap = Tap(settings.tap, settings.tap_token.get_secret_value(), settings.patience)

    async def member_only(authorization: Annotated[str, Header()] = "") -> None:
        expected = f"Bearer {settings.token.get_secret_value()}"
        if not secrets.compare_digest(authorization.encode(), expected.encode()):
            raise HTTPException(401, "not a member")

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        if tap is not None:
            await tap.close()

    app = FastAPI(title="Rampart cohort", dependencies=[Depends(member_only)], lifespan=lifespan)

    # This route precedes the route with {kind}, which would also match this path.
    @app.put("/runs/{run}/rounds/{round_}/absent/{member}", status_code=204)
    async def mark_absent(run: str, round_: int, member: str) -> None:
        cohort.mark_absent(run, round_, member)

    @app.put("/runs/{run}/rounds/{round_}/{kind}/{member}", status_code=204)
    async def share(run: str, round_: int, kind: Kind, member: str, request: Request) -> None:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > LARGEST:
                raise HTTPException(413, "too large")
        try:
            cohort.share(run, round_, kind, member, bytes(body))
        except ValueError as error:
            raise HTTPException(422, str(error)) from None

    @app.get("/runs/{run}/rounds/{round_}/{kind}")
    async def gather(
        run: str, round_: int, kind: Kind, wait: bool = True, member: str | None = None
    ) -> Response:
        shared = await cohort.gather(run, round_, kind, wait, member)
        vectors = {member: np.frombuffer(data, dtype=np.float32) for member, data in shared.items()}
        body = save(vectors, {"gone": str(cohort.gone(run))})
        return Response(body, media_type="application/octet-stream")

    @app.get("/runs/{run}/rounds/{round_}/{kind}/honest")
    async def honest(run: str, round_: int, kind: Kind, wait: bool = True) -> Response:
        if tap is None:
            raise HTTPException(409, "attacks with full knowledge need the aggregator's test tap")
        body = await tap.read(run, round_, kind, cohort.known(run), wait)
        return Response(body, media_type="application/octet-stream")

    @app.put("/runs/{run}/gone/{member}", status_code=204)
    async def leave(run: str, member: str) -> None:
        cohort.leave(run, member)

    return app


async def serve(settings: CohortSettings) -> None:
    """Runs the cohort's process."""
    config = uvicorn.Config(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=2,
    )
    await uvicorn.Server(config).serve()
