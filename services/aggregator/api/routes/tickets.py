"""Routes from which clients read the experiment and their ticket."""

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
from rampart_fl.shared.errors import Unavailable
from rampart_fl.shared.protocol import refusals, wire
from rampart_fl.shared.protocol.messages import Ticket

router = APIRouter(prefix="/v1", tags=["training"], responses=PROBLEMS)
POLLS = 16
"""How many requests for a ticket one client may have waiting at the same time."""
IN_HEADER = 4096
"""Largest length in characters of a ticket or receipt that is sent as a header."""
WANTED = {"update": "train", "probe": "probe", "evaluation": "evaluate"}
"""The kind of ticket that asks for each kind of upload."""


@dataclass(frozen=True)
class Wish:
    """The client's preferences for an answer, from the request's headers."""

    patience: float
    """Seconds for which the aggregator may hold the answer until there is news."""
    held: str | None
    """Digest of the model that the client holds ("" for none). None if the client wants no model
    sent along with the ticket."""


async def wish(
    runtime: RuntimeDep,
    prefer: Annotated[str | None, Header(examples=["wait=30"])] = None,
    accept: Annotated[str | None, Header(examples=["*/*", wire.MEDIA_TYPE])] = None,
    rampart_model: Annotated[str, Header(examples=["digest of the model held"])] = "",
) -> Wish:
    """Reads a client's preferences from the request's headers."""
    wanted = re.search(r"wait=([0-9]{1,6})", prefer or "")
    patience = min(float(wanted.group(1)) if wanted else 0.0, runtime.settings.poll)
    return Wish(patience, rampart_model if accept == wire.MEDIA_TYPE else None)


WishDep = Annotated[Wish, Depends(wish)]


@router.get("/experiment")
async def experiment(runtime: RuntimeDep, caller: CallerDep) -> JSONResponse:
    """Shows the part of the experiment that clients need: data, model, training, personalizer."""
    return JSONResponse((await runtime.definition()).experiment.client_part())


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
    """Shows the client's ticket, which says what the client has to do now.

    `If-None-Match` may name the ETag of the ticket that the client already has. With
    `Prefer: wait=N`, the answer is then held for up to N seconds until there is another ticket.

    A client that accepts only safetensors gets the model that the ticket names as the body, and the
    ticket as the header `Rampart-Ticket`. This saves one request per round. If the client already
    holds the model, and sends its digest as the header `Rampart-Model`, the body is only the
    ticket.
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
    """Waits up to `patience` seconds for a ticket of a client for which `news` is true.

    Returns:
        The ticket, or None if there was no such ticket in time.
    """
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
    """The answer with a ticket: its model with the ticket as a header, or the ticket as JSON.

    Args:
        runtime: the parts of the process.
        found: the ticket.
        held: digest of the model that the client holds ("" for none); None if the client wants no
            model sent along.
    """
    headers = {"ETag": f'"{found.etag}"', "Cache-Control": "no-store"}
    text = found.model_dump_json()
    model = found.models.get("model") if found.kind in WANTED.values() else None
    if held is not None and model not in (None, held) and len(text) <= IN_HEADER:
        assert model is not None
        # If the model is missing, send the ticket alone: the client's own request for the model
        # will then fail with the reason.
        with contextlib.suppress(refusals.NotFound):
            return await model_response(runtime, model, {**headers, wire.TICKET_HEADER: text})
    return Response(text, media_type="application/json", headers=headers)


async def current_ticket(runtime: Runtime, client: str) -> Ticket:
    """A client's outstanding ticket, or one of kind `wait`, `done` or `evicted`."""
    standing = await runtime.stores.tickets.standing(client)
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
        await runtime.stores.tickets.pull(client)
    return Ticket(round=brief.round, kind="wait", experiment=brief.digest)


async def final_models(runtime: Runtime, client: str) -> dict[str, str]:
    """The digests of the models that a client may keep after the federation's end."""
    federation = await runtime.stores.run.read()
    assert federation is not None
    snapshot = federation.snapshot
    return {**snapshot.handed(client, final=True), "global": snapshot.global_model}
