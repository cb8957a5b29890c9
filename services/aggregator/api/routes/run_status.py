"""Routes with which operators read a run's status and events, and pause, resume or stop the run."""

from collections.abc import AsyncIterable, AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Header
from fastapi.sse import EventSourceResponse, ServerSentEvent

from rampart_fl.services.aggregator.api.deps import (
    ActorDep,
    Bearer,
    OperatorDep,
    RunDep,
    RuntimeDep,
)
from rampart_fl.services.aggregator.api.links import OF_STATUS
from rampart_fl.services.aggregator.api.routes import problems
from rampart_fl.services.aggregator.api.routes.runs import cause_of_wait, run_info
from rampart_fl.services.aggregator.api.run_parts import RunParts
from rampart_fl.services.aggregator.api.runtime import Runtime
from rampart_fl.services.aggregator.settings import TAP_ENABLED
from rampart_fl.services.aggregator.state.audit_log import Attribution
from rampart_fl.services.aggregator.state.redis_connection import CONNECTIONS
from rampart_fl.shared.errors import Unavailable
from rampart_fl.shared.protocol import refusals
from rampart_fl.shared.protocol.messages import ModeChange, ReasonBody
from rampart_fl.shared.protocol.runs import OVER, RunInfo, RunStatus

router = APIRouter(
    prefix="/v1/runs/{run}",
    tags=["runs"],
    responses=problems(refusals.RunNotFound, refusals.NotStarted),
    dependencies=[OperatorDep],
)
STREAM, STREAMS = "streams of events", CONNECTIONS // 2
"""The topic under which the event hub counts open event streams, and the maximum number of these
streams. Each open stream holds a connection to Redis."""
STREAMS_EACH = STREAMS // 4
"""Maximum number of one operator's event streams; the limit leaves streams for other operators."""
TICK = 2.0
"""Seconds without an event after which a stream sends a `tick`."""
WITHOUT_REASON = ReasonBody()
"""The default body of requests that pause, resume or stop a run: it gives no reason."""
ABSTAINING = (
    "the detector abstains: it would bar {} more of the previous round's clients, but the maximum "
    "number of clients is already barred; evict or reinstate clients by hand"
)


@router.get("/rounds/current", responses={200: {**OF_STATUS}})
async def current(runtime: RuntimeDep, run: RunDep) -> RunStatus:
    """Shows the run's current status."""
    stores, state = run.stores, await run.state()
    slots, silences = await stores.members.slots(), await runtime.stores.clients.silences()
    barred, receipts = await stores.evictions.barred(), await stores.uploads.receipts(state.round)
    wanted = "evaluation" if state.phase in {"evaluating", "done"} else "update"
    online = {c for c, silent in silences.items() if silent < runtime.settings.offline_after}
    return RunStatus(
        run=run.run,
        name=state.experiment.name,
        experiment=state.digest,
        status=state.status,
        phase=state.phase,
        round=state.round,
        rounds=state.experiment.rounds,
        waits_for=await cause_of_wait(runtime, run.run, state),
        deadline=state.deadline,
        clients=len(slots),
        online=len(online & slots.keys()),
        mode=state.mode or state.experiment.server.eviction.mode,
        evicted=list(barred.evicted),
        quarantined=list(barred.quarantined),
        proposed=list(barred.proposals),
        abstained=list(state.abstained),
        selected=sorted(state.selected),
        examined=list(state.examined),
        received=[r.client for r in receipts if r.kind == wanted],
        models={
            "global": state.snapshot.global_model,
            "reference": state.snapshot.reference,
        },
        warnings=[
            *([TAP_ENABLED] if runtime.settings.test_tap else []),
            *runtime.warnings,
            *([ABSTAINING.format(len(state.abstained))] if state.abstained else []),
        ],
    )


@router.get("/evaluations")
async def evaluations(run: RunDep) -> dict[str, dict[str, float]]:
    """Shows each member's measurements of the final models; empty before the evaluation phase."""
    receipts = await run.stores.uploads.receipts((await run.summary()).round)
    return {r.client: r.metrics for r in receipts if r.kind == "evaluation"}


async def stream_slot(runtime: RuntimeDep, actor: ActorDep) -> AsyncIterator[None]:
    """Counts an event stream as open from the request to the end of the response.

    Raises:
        TooMany: this operator has too many open streams, or all operators together have too many.
    """
    opened = runtime.streams
    if opened[actor.name] >= STREAMS_EACH:
        raise refusals.TooMany(f"{actor.name} already has {STREAMS_EACH} event streams", 5)
    if runtime.hub.count(STREAM) >= STREAMS:
        raise refusals.TooMany("too many event streams are already open", retry_after=5)
    opened[actor.name] += 1
    try:
        with runtime.hub.listen(STREAM):
            yield
    finally:
        opened[actor.name] -= 1


@router.get(
    "/events",
    response_class=EventSourceResponse,
    dependencies=[Depends(stream_slot)],
)
async def events(
    runtime: RuntimeDep,
    run: RunDep,
    token: Bearer,
    last_event_id: Annotated[str | None, Header(pattern=r"^[0-9]{1,19}-[0-9]{1,19}$")] = None,
) -> AsyncIterable[ServerSentEvent]:
    """Streams the run's events as server-sent events: first the kept events, then each new event.

    Until a day after the end of the run, at least the newest 1,000 events are kept. With the header
    `Last-Event-ID`, the stream continues after the event with this id. If no event occurs for two
    seconds, the stream sends an event `tick` without data. The stream closes when the operator's
    token is revoked or expires.
    """
    position = last_event_id or "0-0"
    while not runtime.hub.closing:
        try:
            batch = await run.stores.events.read(position, TICK)
            await runtime.operators.of(token)
        except (Unavailable, refusals.OperatorExpired, refusals.OperatorRevoked):
            return
        for event in batch:
            position = event.position
            data = {name: value for name, value in event.fields.items() if name != "receipt"}
            yield ServerSentEvent(id=position, event=event.type, data=data)
        if not batch:
            yield ServerSentEvent(event="tick")


@router.post("/pause", responses=problems(refusals.RunOver))
async def pause(
    runtime: RuntimeDep, actor: ActorDep, run: RunDep, body: ReasonBody = WITHOUT_REASON
) -> RunInfo:
    """Pauses the run: the current round ends as usual, and no other round opens until `resume`."""
    return await set_status(runtime, run, "paused", actor.because(body.reason))


@router.post("/resume", responses=problems(refusals.RunOver))
async def resume(
    runtime: RuntimeDep, actor: ActorDep, run: RunDep, body: ReasonBody = WITHOUT_REASON
) -> RunInfo:
    """Continues a run that was paused with `pause`."""
    return await set_status(runtime, run, "running", actor.because(body.reason))


@router.post("/stop", responses=problems(refusals.RunOver))
async def stop(
    runtime: RuntimeDep, actor: ActorDep, run: RunDep, body: ReasonBody = WITHOUT_REASON
) -> RunInfo:
    """Stops the run: abandons the current round, and lets clients evaluate the final models.

    The run ends after this evaluation. A queued run is cancelled at once.
    """
    by = actor.because(body.reason)
    if await runtime.stores.runs.cancel(run.run, by) == "cancelled":
        return await run_info(runtime, run.run)
    return await set_status(runtime, run, "stopping", by)


@router.post("/mode", responses=problems(refusals.RunOver, refusals.InvalidExperiment))
async def mode(runtime: RuntimeDep, actor: ActorDep, run: RunDep, body: ModeChange) -> RunStatus:
    """Sets the mode of evictions. Rounds that the worker has already computed keep their mode.

    A mode that bars clients is refused if the experiment could not have been submitted with it.
    """
    answer, now = await run.stores.state.set_mode(body.mode, actor.because(body.reason))
    if answer == "conflict":
        raise refusals.InvalidExperiment(now)
    await info_after(runtime, run, answer, now)
    return await current(runtime, run)


async def set_status(runtime: Runtime, run: RunParts, status: str, by: Attribution) -> RunInfo:
    """Changes the status of the run, and returns the run's entry.

    Raises:
        NotStarted: the run has not started.
        RunOver: the run has ended; or the run is stopping, and `status` is "running" or "paused".
    """
    return await info_after(runtime, run, *await run.stores.state.set_status(status, by))


async def info_after(runtime: Runtime, run: RunParts, answer: str, now: str) -> RunInfo:
    """The run's entry after an operator has changed the run's status or mode.

    Raises:
        NotStarted: the run has not started.
        RunOver: the run is stopping or has ended, so nothing was changed.
    """
    if answer == "unfounded":
        entry = await runtime.stores.runs.entry(run.run)
        if entry is not None and entry.state in OVER:
            raise refusals.RunOver(f"run {run.run} is {entry.state}")
        raise run.not_started
    if answer == "over":
        raise refusals.RunOver(f"run {run.run} is {now}")
    return await run_info(runtime, run.run)
