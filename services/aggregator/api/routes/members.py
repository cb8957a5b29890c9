"""Routes for the members of a run: accept, list, evict, reinstate, and decide on proposals."""

import time
from typing import Annotated

from fastapi import APIRouter, Query

from rampart_fl.services.aggregator.api.deps import (
    ActorDep,
    ClientDep,
    OperatorDep,
    RunDep,
    RuntimeDep,
)
from rampart_fl.services.aggregator.api.routes import PROBLEMS, problems
from rampart_fl.services.aggregator.api.routes.clients import ClientPath
from rampart_fl.services.aggregator.api.routes.tickets import eligible
from rampart_fl.services.aggregator.api.run_parts import RunParts
from rampart_fl.services.aggregator.api.runtime import Runtime
from rampart_fl.services.aggregator.state.eviction_store import Outcome
from rampart_fl.services.aggregator.state.member_store import AnswerRecord
from rampart_fl.shared.protocol import refusals
from rampart_fl.shared.protocol.clients import Proposal
from rampart_fl.shared.protocol.messages import ClientId, ReasonBody
from rampart_fl.shared.protocol.runs import Acceptance, AcceptanceRequest, Member

router = APIRouter(prefix="/v1/runs/{run}", tags=["members"], responses=PROBLEMS)
HOUR = 3600
ANSWERS = 20
"""Maximum number of answers per client, run and hour. The limit is needed because each changed
answer adds an event to the run's log. Before the end of the first round, no events are deleted from
the log."""
UNDECIDED = (refusals.NotFound, refusals.RunNotFound, refusals.RunOver)
"""The errors of all routes on which an operator decides about a client."""


@router.put(
    "/acceptance",
    responses=problems(
        refusals.RunNotFound,
        refusals.NotMember,
        refusals.Evicted,
        refusals.NotStarted,
        refusals.RunOver,
        refusals.RunFull,
        refusals.Conflict,
    ),
)
async def acceptance(
    runtime: RuntimeDep, client: ClientDep, run: RunDep, body: AcceptanceRequest
) -> Acceptance:
    """Accepts or declines the offer of a run; a client may change its answer until the run starts.

    When the run starts, the clients that accepted the offer get the run's slots. A client that
    accepts after the start gets a slot immediately, or is refused if no slot is free.
    """
    experiment = (await run.definition()).experiment
    if not await eligible(runtime, client, experiment):
        raise refusals.NotMember(
            f"run {run.run} selects clients by labels, and the labels of {client} do not match"
        )
    now = time.time()
    attempt = f"acceptance:{run.run}:{client}"
    if await runtime.stores.attempts.count(attempt, HOUR, now) > ANSWERS:
        raise refusals.TooMany(
            "this client has answered the offer too often", round(HOUR - now % HOUR) + 1
        )
    if body.accept:
        # If the client was away in its last run, it must count as online again before this run
        # starts.
        await runtime.hub.store_return(client)
    answer = AnswerRecord(body.accept, now, body.reason, body.slot)
    outcome, slot = await run.stores.members.answer(client, answer, experiment.data.clients)
    errors: dict[str, refusals.Refusal] = {
        "evicted": refusals.Evicted(f"{client} is barred from run {run.run}"),
        "unfounded": run.not_started,
        "over": refusals.RunOver(f"run {run.run} accepts no more clients"),
        "frozen": refusals.Conflict(f"{client} already takes part in run {run.run}"),
        "full": refusals.RunFull(f"all {experiment.data.clients} slots of {run.run} are taken"),
    }
    if outcome in errors:
        raise errors[outcome]
    return Acceptance(
        run=run.run,
        client_id=client,
        accept=body.accept,
        reason=body.reason,
        slot=int(slot) if slot else None,
    )


@router.get("/members", dependencies=[OperatorDep], responses=problems(refusals.RunNotFound))
async def members(
    runtime: RuntimeDep,
    run: RunDep,
    client_id: Annotated[
        ClientId | None, Query(alias="client", description="list only this client")
    ] = None,
) -> list[Member]:
    """Lists the clients that answered the run's offer, joined the run, or are barred from it."""
    stores = run.stores
    answers, slots = await stores.members.answers(), await stores.members.slots()
    barred, tickets = await stores.evictions.barred(), await stores.tickets.outstanding()
    concerned = sorted({*answers, *slots, *barred.evicted, *barred.quarantined})
    if client_id is not None:
        concerned = [client for client in concerned if client == client_id]
    facts = await runtime.stores.clients.facts(concerned)
    return [
        Member(
            client_id=client,
            accept=answers[client].accept if client in answers else None,
            reason=answers[client].reason if client in answers else "",
            slot=slots.get(client),
            online=facts[client].online(runtime.settings.offline_after),
            software=facts[client].software,
            barred=facts[client].barred,
            evicted=client in barred.evicted,
            eviction=barred.evicted.get(client),
            quarantine=barred.quarantined.get(client),
            abstained=client in barred.abstained - barred.out,
            ticket=tickets.get(client),
        )
        for client in concerned
    ]


@router.post("/clients/{client_id}/evict", responses=problems(*UNDECIDED))
async def evict(
    runtime: RuntimeDep, actor: ActorDep, run: RunDep, client_id: ClientPath, body: ReasonBody
) -> Member:
    """Evicts a client from the run; only `reinstate` can undo the eviction."""
    outcome = await run.stores.evictions.evict(client_id, actor.because(body.reason))
    check_decided(run, client_id, outcome, "an eviction")
    return await member(runtime, run, client_id)


@router.post("/clients/{client_id}/reinstate", responses=problems(*UNDECIDED))
async def reinstate(
    runtime: RuntimeDep, actor: ActorDep, run: RunDep, client_id: ClientPath, body: ReasonBody
) -> Member:
    """Undoes an eviction or a quarantine; the client then sends a probe, as newcomers do.

    After the end of the run, only an eviction can be undone. The reinstated client may then
    download the final models.
    """
    outcome = await run.stores.evictions.reinstate(client_id, actor.because(body.reason))
    check_decided(run, client_id, outcome, "the end of a quarantine")
    return await member(runtime, run, client_id)


@router.get("/proposals", dependencies=[OperatorDep], responses=problems(refusals.RunNotFound))
async def proposals(run: RunDep) -> list[Proposal]:
    """Lists the evictions that wait for an operator's decision, each with its evidence.

    After the end of the run, no proposal waits for a decision any more.
    """
    summary = await run.stores.state.summary()
    if summary is not None and summary.phase == "done":
        return []
    waiting = (await run.stores.evictions.barred()).proposals
    return [
        Proposal(client_id=client, **why.model_dump(exclude={"kind"}))
        for client, why in waiting.items()
    ]


@router.post("/clients/{client_id}/confirm", responses=problems(*UNDECIDED, refusals.Conflict))
async def confirm(
    runtime: RuntimeDep, actor: ActorDep, run: RunDep, client_id: ClientPath, body: ReasonBody
) -> Member:
    """Evicts a client whose eviction was proposed.

    If the experiment's evictions apply to the whole federation, this eviction does, too.
    """
    everywhere = False
    if await run.stores.state.summary() is not None:
        eviction = (await run.definition()).experiment.server.eviction
        everywhere = eviction.scope == "federation"
    by = actor.because(body.reason)
    outcome = await run.stores.evictions.confirm(client_id, by, everywhere)
    return await member_after(runtime, run, client_id, outcome)


@router.post("/clients/{client_id}/dismiss", responses=problems(*UNDECIDED, refusals.Conflict))
async def dismiss(
    runtime: RuntimeDep, actor: ActorDep, run: RunDep, client_id: ClientPath, body: ReasonBody
) -> Member:
    """Dismisses a proposal: readmits the client and discards the evidence."""
    outcome = await run.stores.evictions.dismiss(client_id, actor.because(body.reason))
    return await member_after(runtime, run, client_id, outcome)


def check_decided(run: RunParts, client_id: str, outcome: Outcome, decision: str) -> None:
    """Raises the error that explains why an operator's decision was not carried out.

    Args:
        run: the run.
        client_id: the client about which the operator decided.
        outcome: says whether the decision was carried out.
        decision: a noun for the decision, such as "an eviction", for the text of the error if the
            run has ended.
    """
    errors: dict[str, refusals.Refusal] = {
        "unknown": refusals.NotFound(f"no client {client_id}"),
        "deleted": refusals.RunNotFound(f"there is no run {run.run}"),
        "gone": refusals.Conflict(f"there is no proposal to evict {client_id}"),
        "over": refusals.RunOver(
            f"run {run.run} is {outcome.state}, so {decision} would have no effect"
        ),
    }
    if outcome.answer in errors:
        raise errors[outcome.answer]


async def member_after(runtime: Runtime, run: RunParts, client_id: str, outcome: Outcome) -> Member:
    """The client's state after an operator has confirmed or dismissed the proposal to evict it.

    Raises:
        NotFound: there is no such client.
        Conflict: there was no proposal to evict the client.
        RunOver, RunNotFound: the run has ended, or was deleted.
    """
    info = await member(runtime, run, client_id)
    check_decided(run, client_id, outcome, "a decision on a proposal")
    return info


async def member(runtime: Runtime, run: RunParts, client_id: str) -> Member:
    """A client's current state in the run.

    Raises:
        NotFound: there is no such client.
    """
    for info in await members(runtime, run, client_id):
        return info
    if await runtime.stores.clients.record(client_id) is None:
        raise refusals.NotFound(f"no client {client_id}")
    return Member(client_id=client_id)
