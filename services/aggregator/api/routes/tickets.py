"""Routes that give clients their ticket and the experiment of a run."""

import asyncio
import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Response
from fastapi.responses import JSONResponse

from rampart_fl.services.aggregator.api.deps import (
    CallerDep,
    KnownUnlessAwayDep,
    RunDep,
    RuntimeDep,
)
from rampart_fl.services.aggregator.api.identities import TokenOwner
from rampart_fl.services.aggregator.api.links import OF_TICKET
from rampart_fl.services.aggregator.api.model_responses import model_response
from rampart_fl.services.aggregator.api.openapi_parts import (
    EXPERIMENT,
    MODEL,
    TICKET_ETAG,
    TICKET_HEADERS,
)
from rampart_fl.services.aggregator.api.routes import PROBLEMS, problems
from rampart_fl.services.aggregator.api.run_parts import RunParts
from rampart_fl.services.aggregator.api.runtime import Runtime
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.start import RUN_ID
from rampart_fl.shared.protocol import refusals, wire
from rampart_fl.shared.protocol.clients import Bar
from rampart_fl.shared.protocol.messages import Ticket

router = APIRouter(prefix="/v1", tags=["training"], responses=PROBLEMS)
OFFERED = frozenset({"joining", "collecting", "aggregating", "published", "failed"})
"""The phases in which a client can still become a member of the run."""
POLLS = 16
"""Maximum number of simultaneously waiting ticket requests per client."""
IN_HEADER = 4096
"""Maximum number of characters of a ticket or receipt that is sent as a header."""
TICKET_FOR_UPLOAD = {"update": "train", "probe": "probe", "evaluation": "evaluate"}
"""Maps each kind of upload to the kind of ticket that asks for it."""


@dataclass(frozen=True)
class ResponsePreferences:
    """The client's preferences for a response, from the request's headers."""

    patience: float
    """Longest time in seconds that the request waits for a new ticket."""
    held: str | None
    """Digest of the model that the client holds ("" for none). None if the client wants the ticket
    without a model."""


async def response_preferences(
    runtime: RuntimeDep,
    prefer: Annotated[str | None, Header(examples=["wait=30"])] = None,
    accept: Annotated[str | None, Header(examples=["*/*", wire.MEDIA_TYPE])] = None,
    rampart_model: Annotated[str, Header(examples=["digest of the model held"])] = "",
) -> ResponsePreferences:
    """Parses a client's preferences from the request's headers."""
    wanted = re.search(r"wait=([0-9]{1,6})", prefer or "")
    patience = min(float(wanted.group(1)) if wanted else 0.0, runtime.settings.poll)
    return ResponsePreferences(patience, rampart_model if accept == wire.MEDIA_TYPE else None)


PreferencesDep = Annotated[ResponsePreferences, Depends(response_preferences)]


@router.get(
    "/runs/{run}/experiment",
    responses={
        200: {"description": "The experiment", "content": EXPERIMENT},
        **problems(refusals.RunNotFound, refusals.NotMember),
    },
)
async def experiment(runtime: RuntimeDep, caller: CallerDep, run: RunDep) -> JSONResponse:
    """Shows an operator the whole experiment, and shows a client only the part that clients need.

    The part for clients includes the TOML tables `data`, `model`, `training` and `personalizer`.
    Two kinds of clients may send this request: members of the run, and clients with labels that
    match the run's selection. If the run's first model is not initialized from the experiment's
    seed, the response to a client also has `initial`, the digest of the first model.
    """
    if caller is None:
        return JSONResponse((await runtime.stores.runs.experiment(run.run)).tables())
    definition = (await run.definition()).experiment
    member = (await run.stores.tickets.standing(caller)).slot is not None
    if not member and not await eligible(runtime, caller, definition):
        raise refusals.NotMember(
            f"run {run.run} selects clients by labels, and the labels of {caller} do not match"
        )
    initial = None if definition.start is None else (await run.state()).snapshot.initial
    return JSONResponse({**definition.client_part(), **({"initial": initial} if initial else {})})


async def eligible(runtime: Runtime, client: str, experiment: Experiment) -> bool:
    """Whether the client's labels match the experiment's selection of clients."""
    if not experiment.clients.select:
        return True
    record = await runtime.stores.clients.record(client)
    return record is not None and experiment.clients.eligible(record.labels)


@router.get(
    "/ticket",
    response_model=Ticket,
    responses={
        200: {
            "description": "The ticket as JSON; or its model, with the ticket in a header",
            "content": MODEL,
            "headers": TICKET_HEADERS,
            **OF_TICKET,
        },
        204: {"description": "Nothing new yet", "headers": TICKET_ETAG},
    },
)
async def ticket(
    runtime: RuntimeDep,
    known: KnownUnlessAwayDep,
    preferences: PreferencesDep,
    run: Annotated[
        str | None,
        Query(
            pattern=RUN_ID,
            description="the run in which the client takes part; by default, the current run",
            examples=["digits-benign-1"],
        ),
    ] = None,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Shows the client's ticket, which names a run and says what the client has to do now.

    A member of a run passes the run's id as `run` until the ticket is `done` or `evicted`. If the
    next run has already started, the client thus still learns that its own run has ended. If the
    named run does not exist any more, the response is the ticket for the current run.

    A member can stop training in its run, for example because its owner has withdrawn it. The
    member then passes `away=true` until the run has ended. With such a request, the client
    counts as offline at once.

    `If-None-Match` may contain the ETag of the ticket that the client already has. With
    `If-None-Match` and `Prefer: wait=N`, the aggregator waits up to N seconds for a new ticket
    before it responds.

    A client that accepts only safetensors gets the ticket in the header `Rampart-Ticket`; the
    response's body is the model that the ticket names. One response with both the ticket and the
    model saves a request per round. If the header `Rampart-Model` shows that the client already
    holds the model, the body is the ticket alone.
    """
    if runtime.hub.count(known.client) >= POLLS:
        raise refusals.TooMany("this client has too many waiting requests", retry_after=5)
    next_ticket = await await_ticket(
        runtime,
        known,
        run,
        preferences.patience,
        lambda candidate: f'"{candidate.etag}"' != if_none_match,
    )
    if next_ticket is None:
        assert if_none_match is not None
        return Response(status_code=204, headers={"ETag": if_none_match})
    return await ticket_response(runtime, next_ticket, preferences.held)


async def await_ticket(
    runtime: Runtime,
    known: TokenOwner,
    run: str | None,
    patience: float,
    news: Callable[[Ticket], bool],
) -> Ticket | None:
    """Waits up to `patience` seconds until the client has a ticket for which `news` returns true.

    The ticket is for the given run. If no run is given, or if the given run has no ticket for the
    client, the ticket is for the current run.

    Returns:
        The ticket. The result is None if the client had no such ticket in time, or if the client's
        token was revoked or replaced during the wait.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + patience
    with runtime.hub.listen(known.client) as wait:
        while True:
            candidate = await current_ticket(runtime, known.client, run)
            if news(candidate):
                return candidate
            del candidate  # Frees memory during the wait: many requests can wait here.
            left = until - loop.time()
            if left <= 0 or not await wait(left):
                return None
            if not await runtime.identities.still_valid(known):
                return None


async def ticket_response(runtime: Runtime, current: Ticket, held: str | None) -> Response:
    """The response with a ticket: the ticket as JSON, or its model with the ticket in a header.

    Args:
        runtime: the objects that all requests of the process share.
        current: the ticket.
        held: digest of the model that the client holds ("" for none); None if the client wants the
            ticket without a model.
    """
    headers = {"ETag": f'"{current.etag}"', "Cache-Control": "no-store"}
    text = current.model_dump_json()
    model = current.models.get("model") if current.kind in TICKET_FOR_UPLOAD.values() else None
    if held is not None and model not in (None, held) and len(text) <= IN_HEADER:
        assert model is not None
        # If the aggregator no longer has the model, send the ticket alone. If the client requests
        # the missing model, the client gets an error that states the reason.
        with contextlib.suppress(refusals.NotFound, refusals.RunNotFound):
            own = await runtime.run(current.run)
            return await model_response(runtime, own, model, {**headers, wire.TICKET_HEADER: text})
    return Response(text, media_type="application/json", headers=headers)


async def current_ticket(runtime: Runtime, client: str, run: str | None) -> Ticket:
    """A client's ticket for the given run; if there is none, the ticket for the current run.

    If there is no ticket for the current run either, the result is a ticket without a run:
    `evicted` if the client is barred, and `wait` otherwise.
    """
    current = await ticket_of_run(runtime, client, run)
    if current is None:
        current = await ticket_of_run(runtime, client, await runtime.stores.runs.current())
    if current is not None:
        return current
    barred = (await runtime.stores.clients.facts([client]))[client].barred
    return barred_ticket(barred) if barred is not None else Ticket(kind="wait")


async def ticket_of_run(runtime: Runtime, client: str, run: str | None) -> Ticket | None:
    """A client's ticket for a run; None if the run does not exist or does not involve the client.

    Callers may pass None as `run`, for example if there is no current run; the result is then None.
    """
    if run is None:
        return None
    with contextlib.suppress(refusals.RunNotFound):
        return await ticket_in(runtime, client, await runtime.run(run))
    return None


def barred_ticket(barred: Bar) -> Ticket:
    """The ticket of a client that is barred from the federation."""
    return Ticket(kind="evicted", reason=barred.reason[:500])


async def ticket_in(runtime: Runtime, client: str, run: RunParts) -> Ticket | None:
    """A client's ticket for one run; None if the client has no slot and is not offered one."""
    standing = await run.stores.tickets.standing(client)
    summary, slot = standing.summary, standing.slot
    if standing.barred is not None:
        return barred_ticket(standing.barred)
    if summary is None:
        return None
    wait = Ticket(
        kind="wait", run=run.run, round=summary.round, slot=slot, experiment=summary.digest
    )
    if slot is None:
        if standing.answered or standing.eviction is not None or summary.phase not in OFFERED:
            return None
        offered = await eligible(runtime, client, (await run.definition()).experiment)
        return wait.model_copy(update={"kind": "offer", "round": 0}) if offered else None
    if standing.eviction is not None:
        reason = standing.eviction.reason[:500]
        return wait.model_copy(update={"kind": "evicted", "reason": reason})
    if summary.phase == "done":
        return wait.model_copy(update={"kind": "done", "models": await final_models(run, client)})
    if standing.ticket is not None:
        return standing.ticket.model_copy(update={"slot": slot})
    if summary.policy == "buffered":
        await run.stores.tickets.pull(client)
    return wait


async def final_models(run: RunParts, client: str) -> dict[str, str]:
    """The digests of the models that a member may keep after the run's end."""
    snapshot = (await run.state()).snapshot
    return {**snapshot.ticket_models(client, final=True), "global": snapshot.global_model}
