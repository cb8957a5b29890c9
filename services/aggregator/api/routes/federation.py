"""Routes with which operators read the status and events, pause, resume, stop, and set the mode."""

import time
from collections.abc import AsyncIterable, AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Header
from fastapi.sse import EventSourceResponse, ServerSentEvent

from rampart_fl.services.aggregator.api.deps import ActorDep, Bearer, OperatorDep, RuntimeDep
from rampart_fl.services.aggregator.api.routes import PROBLEMS, problems
from rampart_fl.services.aggregator.api.runtime import Runtime
from rampart_fl.services.aggregator.settings import TAPPED
from rampart_fl.services.aggregator.state.audit_log import Attribution
from rampart_fl.services.aggregator.state.redis_access import CONNECTIONS
from rampart_fl.shared.errors import Unavailable
from rampart_fl.shared.protocol import refusals
from rampart_fl.shared.protocol.messages import Decision, FederationStatus, ModeChange

router = APIRouter(
    prefix="/v1", tags=["federation"], responses=PROBLEMS, dependencies=[OperatorDep]
)
STREAM, STREAMS = "streams of events", CONNECTIONS // 2
"""The event hub's topic for open streams, and the largest number of streams that may be open at the
same time. The number is limited because each stream holds a connection to Redis."""
TICK = 2.0
"""Seconds without an event after which a stream sends a `tick`."""
UNEXPLAINED = Decision()
"""The body of a request that gives no reason."""
ABSTAINING = (
    "the detector abstains: it would bar {} more of the last round's clients, but as many are "
    "barred as may be; evict or reinstate by hand"
)


@router.get("/rounds/current")
async def current(runtime: RuntimeDep) -> FederationStatus:
    """Shows the federation's current status."""
    stores = runtime.stores
    federation = await stores.run.read()
    if federation is None:
        raise Unavailable("no federation has been founded yet")
    known, seen = await stores.clients.records(), await stores.clients.seen()
    barred, tickets = await stores.evictions.barred(), await stores.tickets.outstanding()
    receipts = await stores.uploads.receipts(federation.round)
    wanted = "evaluation" if federation.phase in {"evaluating", "done"} else "update"
    since = time.time() - runtime.settings.offline_after
    return FederationStatus(
        name=federation.experiment.name,
        experiment=federation.digest,
        status=federation.status,
        phase=federation.phase,
        round=federation.round,
        rounds=federation.experiment.rounds,
        deadline=federation.deadline,
        clients=len(known),
        online=sum(seen.get(client, 0) > since for client in known),
        mode=federation.mode or federation.experiment.server.eviction.mode,
        evicted=list(barred.evicted),
        quarantined=list(barred.quarantined),
        proposed=list(barred.proposals),
        abstained=list(federation.abstained),
        selected=sorted(federation.selected),
        received=[r.client for r in receipts if r.kind == wanted],
        probing=[c for c, t in tickets.items() if t.kind == "probe"],
        models={
            "global": federation.snapshot.global_model,
            "reference": federation.snapshot.reference,
        },
        warnings=[
            *([TAPPED] if runtime.settings.test_tap else []),
            *runtime.warnings,
            *([ABSTAINING.format(len(federation.abstained))] if federation.abstained else []),
        ],
    )


@router.get("/evaluations")
async def evaluations(runtime: RuntimeDep) -> dict[str, dict[str, float]]:
    """Shows each client's measurements of the final models; empty until the federation ends."""
    brief = await runtime.stores.run.brief()
    if brief is None:
        raise Unavailable("no federation has been founded yet")
    receipts = await runtime.stores.uploads.receipts(brief.round)
    return {r.client: r.metrics for r in receipts if r.kind == "evaluation"}


async def stream_slot(runtime: RuntimeDep) -> AsyncIterator[None]:
    """Holds one of the slots for open streams, from the request to the end of its answer."""
    if runtime.hub.count(STREAM) >= STREAMS:
        raise refusals.TooMany("too many streams of events are open already", retry_after=5)
    with runtime.hub.listen(STREAM):
        yield


@router.get(
    "/events",
    response_class=EventSourceResponse,
    responses=problems(refusals.TooMany),
    dependencies=[Depends(stream_slot)],
)
async def events(
    runtime: RuntimeDep,
    token: Bearer,
    last_event_id: Annotated[str | None, Header(pattern=r"^[0-9]{1,19}-[0-9]{1,19}$")] = None,
) -> AsyncIterable[ServerSentEvent]:
    """Streams everything that happens, as server-sent events.

    With the header `Last-Event-ID`, the stream continues after that event. While nothing happens,
    an event `tick` without data is sent every two seconds. The stream ends once the operator's
    token is revoked or expires.
    """
    position = last_event_id or await runtime.stores.events.last_position()
    while not runtime.hub.closing:
        try:
            found = await runtime.stores.events.read(position, TICK)
            await runtime.operators.of(token)
        except (Unavailable, refusals.OperatorExpired, refusals.OperatorRevoked):
            return
        for event in found:
            position = event.position
            data = {name: value for name, value in event.fields.items() if name != "receipt"}
            yield ServerSentEvent(id=position, event=event.type, data=data)
        if not found:
            yield ServerSentEvent(event="tick")


@router.post("/federation/pause", responses=problems(refusals.Conflict))
async def pause(
    runtime: RuntimeDep, actor: ActorDep, body: Decision = UNEXPLAINED
) -> FederationStatus:
    """Lets the current round end as usual, and opens no other round until `resume`."""
    return await set_status(runtime, "paused", actor.because(body.reason))


@router.post("/federation/resume", responses=problems(refusals.Conflict))
async def resume(
    runtime: RuntimeDep, actor: ActorDep, body: Decision = UNEXPLAINED
) -> FederationStatus:
    """Continues after `pause`."""
    return await set_status(runtime, "running", actor.because(body.reason))


@router.post("/federation/stop", responses=problems(refusals.Conflict))
async def stop(
    runtime: RuntimeDep, actor: ActorDep, body: Decision = UNEXPLAINED
) -> FederationStatus:
    """Abandons the current round, lets clients evaluate the final models, and then ends."""
    return await set_status(runtime, "stopping", actor.because(body.reason))


@router.post("/federation/mode", responses=problems(refusals.Conflict))
async def mode(runtime: RuntimeDep, actor: ActorDep, body: ModeChange) -> FederationStatus:
    """Sets the mode of evictions, which applies from the next round that the worker decides."""
    by = actor.because(body.reason)
    return await changed(runtime, *await runtime.stores.run.set_mode(body.mode, by))


async def set_status(runtime: Runtime, status: str, by: Attribution) -> FederationStatus:
    """Changes the status.

    Raises:
        Conflict: the federation has finished, or it is stopping and `status` is not "stopping".
    """
    return await changed(runtime, *await runtime.stores.run.set_status(status, by))


async def changed(runtime: Runtime, answer: str, now: str) -> FederationStatus:
    """The status after a change.

    Raises:
        Unavailable: no worker has created the federation yet.
        Conflict: nothing was changed because the federation is stopping or has finished.
    """
    if answer == "unfounded":
        raise Unavailable("no federation has been founded yet")
    if answer == "over":
        raise refusals.Conflict(f"the federation is {now}")
    return await current(runtime)
