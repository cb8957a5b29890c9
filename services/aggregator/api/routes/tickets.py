"""What clients read: the experiment, and their ticket."""

import asyncio
import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Response
from fastapi.responses import JSONResponse

from rampart_fl.services.aggregator.api.deps import CallerDep, ClientDep, RuntimeDep
from rampart_fl.services.aggregator.api.model_responses import model_response
from rampart_fl.services.aggregator.api.routes import BYTES, PROBLEMS, problems
from rampart_fl.services.aggregator.api.runtime import Runtime
from rampart_fl.shared.assignment import handed
from rampart_fl.shared.errors import Unavailable
from rampart_fl.shared.protocol import refusals, wire
from rampart_fl.shared.protocol.messages import Ticket

router = APIRouter(prefix="/v1", tags=["training"], responses=PROBLEMS)
POLLS = 16
"""Requests for a ticket that one client may have waiting."""
IN_HEADER = 4096
"""Characters of the longest ticket or receipt that travels as a header."""
WANTED = {"update": "train", "probe": "probe", "evaluation": "evaluate"}
"""The kind of ticket that asks for each kind of upload."""


@dataclass(frozen=True)
class Wish:
    """How a client would have its answer."""

    patience: float
    """Seconds for which it may be held until there is news."""
    held: str | None
    """The model that the client holds ("" for none); None if it wants none sent along."""


async def wish(
    runtime: RuntimeDep,
    prefer: Annotated[str | None, Header(examples=["wait=30"])] = None,
    accept: Annotated[str | None, Header(examples=["*/*", wire.MEDIA_TYPE])] = None,
    rampart_model: Annotated[str, Header(examples=["digest of the model held"])] = "",
) -> Wish:
    """What a request's headers wish for."""
    wanted = re.search(r"wait=([0-9]{1,6})", prefer or "")
    patience = min(float(wanted.group(1)) if wanted else 0.0, runtime.settings.poll)
    return Wish(patience, rampart_model if accept == wire.MEDIA_TYPE else None)


WishDep = Annotated[Wish, Depends(wish)]


@router.get("/experiment")
async def experiment(runtime: RuntimeDep, caller: CallerDep) -> JSONResponse:
    """The experiment as clients need it: data, model, training, personalizer, digest."""
    from rampart_fl.shared.experiment import Experiment

    _, _, tables = await runtime.fixed()
    return JSONResponse(Experiment.from_tables(tables).client_part())


@router.get(
    "/ticket",
    response_model=Ticket,
    responses={
        200: {"description": "The ticket; or its model, the ticket in a header", "content": BYTES},
        204: {"description": "Nothing new yet"},
        **problems(refusals.TooMany),
    },
)
async def ticket(
    runtime: RuntimeDep,
    client: ClientDep,
    wish: WishDep,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """What this client is to do now; with `Prefer: wait=N`, held until that changes.

    A ticket's ETag in `If-None-Match` says what the client knows already. To a client that accepts
    safetensors the ticket comes as the header `Rampart-Ticket` of the model that it names, unless
    the client holds that model already (`Rampart-Model`): one request less in every round.
    """
    if runtime.hub.count(client) >= POLLS:
        raise refusals.TooMany("this client has too many waiting requests", retry_after=5)
    found = await await_ticket(
        runtime, client, wish.patience, lambda found: f'"{found.etag}"' != if_none_match
    )
    if found is None:
        assert if_none_match is not None
        return Response(status_code=204, headers={"ETag": if_none_match})
    return await ticket_response(runtime, found, wish.held)


async def await_ticket(
    runtime: Runtime, client: str, patience: float, news: Callable[[Ticket], bool]
) -> Ticket | None:
    """The first ticket of a client that is news; None if none came within so many seconds."""
    loop = asyncio.get_running_loop()
    until = loop.time() + patience
    with runtime.hub.listen(client) as wait:
        while True:
            found = await current_ticket(runtime, client)
            if news(found):
                return found
            left = until - loop.time()
            if left <= 0 or not await wait(left):
                return None


async def ticket_response(runtime: Runtime, found: Ticket, held: str | None) -> Response:
    """A ticket as JSON, or with its model for who says which one it holds ("" for none)."""
    headers = {"ETag": f'"{found.etag}"', "Cache-Control": "no-store"}
    text = found.model_dump_json()
    model = found.models.get("model") if found.kind in WANTED.values() else None
    if held is not None and model not in (None, held) and len(text) <= IN_HEADER:
        assert model is not None
        # Without that model, the client hears of it when it asks for the model itself.
        with contextlib.suppress(refusals.NotFound):
            return await model_response(runtime, model, {**headers, wire.TICKET_HEADER: text})
    return Response(text, media_type="application/json", headers=headers)


async def current_ticket(runtime: Runtime, client: str) -> Ticket:
    """A client's ticket, or one that says wait, done or evicted."""
    standing = await runtime.store.standing(client)
    brief = standing.brief
    if brief is None:
        raise Unavailable("no federation has been founded yet")
    if standing.eviction is not None:
        return Ticket(
            round=brief.round,
            kind="evicted",
            experiment=brief.digest,
            reason=str(standing.eviction.get("reason", ""))[:500],
        )
    if brief.phase == "done":
        return Ticket(
            round=brief.round,
            kind="done",
            models=await final_models(runtime, client),
            experiment=brief.digest,
        )
    if standing.ticket is not None:
        return standing.ticket
    if brief.policy == "buffered":
        await runtime.store.pull(client)
    return Ticket(round=brief.round, kind="wait", experiment=brief.digest)


async def final_models(runtime: Runtime, client: str) -> dict[str, str]:
    """The models that a client may keep after the end."""
    federation = await runtime.store.federation()
    assert federation is not None
    snapshot = federation.snapshot
    return {**handed(client, snapshot, final=True), "global": snapshot["global_model"]}
