"""The red team's tap: sends all honest updates of a round to attackers with full knowledge.

The tap is part of the application only if RAMPART_TEST_TAP is set. Settings for production do not
allow RAMPART_TEST_TAP. The tap cannot know which clients are honest, so the caller names the
clients to exclude.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

import numpy as np
from fastapi import APIRouter, Depends, Path, Query, Response
from safetensors.numpy import save

from rampart_fl.services.aggregator.api.deps import Bearer, RunDep, RuntimeDep
from rampart_fl.services.aggregator.api.openapi_parts import BYTES
from rampart_fl.services.aggregator.api.routes import PROBLEMS, problems
from rampart_fl.services.aggregator.api.run_parts import RunParts
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol import refusals, wire
from rampart_fl.shared.protocol.messages import Receipt, Ticket
from rampart_fl.shared.protocol.tap import REFERENCE, STARTED
from rampart_fl.shared.runtime.tokens import matches

log = logging.getLogger(__name__)
PAUSE = 0.05
"""Seconds between two checks for missing uploads."""


async def require_tap(runtime: RuntimeDep, token: Bearer) -> None:
    """Refuses every caller that does not have the tap's token."""
    if not matches(token, runtime.tap_hash):
        raise refusals.Unauthorized("this request needs the token in RAMPART_TEST_TAP")


router = APIRouter(
    prefix="/v1/runs/{run}/test-tap",
    tags=["tests"],
    responses=PROBLEMS,
    dependencies=[Depends(require_tap)],
)


@router.get(
    "/rounds/{round}/{kind}",
    response_class=Response,
    responses={
        200: {"description": "Updates by client", "content": BYTES},
        **problems(refusals.Late, refusals.RunNotFound, refusals.NotStarted),
    },
)
async def honest_updates(
    runtime: RuntimeDep,
    run: RunDep,
    round: Annotated[int, Path(ge=0, le=10**9)],  # noqa: A002 - the path's name
    kind: Literal["train", "probe"],
    without: Annotated[str, Query(description="client ids, separated by commas")] = "",
    patience: Annotated[float, Query(ge=0, le=600)] = 60.0,
) -> Response:
    """Sends the updates of a round, except those of the clients in `without`.

    The response is delayed until the updates have arrived, the round is over, or `patience` seconds
    have passed. The response is a safetensors file with one vector per client, named by the
    client's id. `/started/<client>` is the model that the client trained from. `/reference` is the
    reference model: a calibrated update is the trained model minus this model. The file's metadata
    contains the experiment's table `server`, as JSON.
    """
    left_out = frozenset(without.split(","))
    receipts = await gather(run, round, kind, left_out, patience)
    log.critical("the tap hands out %d updates", len(receipts), extra={"round": round})
    state = await run.state()
    spec, snapshot = state.spec, state.snapshot
    reference = snapshot.global_model if kind == "train" else snapshot.reference
    digests = {REFERENCE: reference}
    for receipt in receipts:
        started = receipt.started or reference
        digests |= {receipt.client: receipt.digest, STARTED + receipt.client: started}

    def read() -> bytes:
        vectors = {name: read_vector(run, digest, spec) for name, digest in digests.items()}
        return save(vectors, {"server": state.experiment.server.model_dump_json()})

    try:
        body = await asyncio.get_running_loop().run_in_executor(runtime.disk, read)
    except FileNotFoundError:
        raise refusals.Late(f"round {round} is over, and its updates were deleted") from None
    return Response(body, media_type=wire.MEDIA_TYPE, headers={"Cache-Control": "no-store"})


async def gather(
    run: RunParts, round_: int, kind: str, left_out: frozenset[str], patience: float
) -> list[Receipt]:
    """Waits for a round's uploads; returns their receipts, sorted by client.

    The wait ends when all clients outside `left_out` have uploaded, when the round is over, or when
    `patience` seconds have passed.
    """
    wanted = "update" if kind == "train" else "probe"
    loop = asyncio.get_running_loop()
    until = loop.time() + patience
    while True:
        summary = await run.stores.state.summary()
        over = summary is None or summary.round != round_ or summary.phase != "collecting"
        # Redis removes a client's ticket when it stores the receipt of the client's upload. The
        # receipts are therefore read after the tickets: in the other order, an upload between the
        # two reads would be missed.
        tickets = await run.stores.tickets.outstanding()
        open_ = {name: one for name, one in tickets.items() if one.round == round_}
        receipts = await run.stores.uploads.receipts(round_)
        if over or loop.time() > until or not missing_clients(open_, receipts, kind) - left_out:
            seen = [r for r in receipts if r.kind == wanted and r.client not in left_out]
            return sorted(seen, key=lambda receipt: receipt.client)
        await asyncio.sleep(PAUSE)


def missing_clients(
    tickets: Mapping[str, Ticket], receipts: Iterable[Receipt], kind: str
) -> set[str]:
    """The clients that still have to send an upload of kind `kind` in a round.

    Args:
        tickets: the round's outstanding tickets, keyed by client.
        receipts: receipts of the round's uploads.
    """
    if kind == "probe":
        return {client for client, ticket in tickets.items() if ticket.kind == "probe"}
    sent = {
        which: {one.client for one in receipts if one.kind == which}
        for which in ("update", "probe")
    }
    asked = {client for client, one in tickets.items() if one.kind in ("train", "probe")}
    # A client that has answered a probe gets a ticket for training as soon as its model is made.
    return asked | (sent["probe"] - sent["update"])


def read_vector(run: RunParts, digest: str, spec: ModelSpec) -> "np.typing.NDArray[np.float32]":
    """Reads a stored update or model as a vector (D,)."""
    with run.blobs.open(digest) as file:
        size = file.seek(0, 2)
        file.seek(0)
        vector_D = np.empty(spec.dim, dtype=np.float32)
        wire.read_vector(file, wire.read_header(file, size, spec), vector_D)
        return vector_D
