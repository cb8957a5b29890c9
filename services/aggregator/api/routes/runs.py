"""Routes that submit, list and delete runs."""

import asyncio
import json
import re
import time
import uuid
from math import inf
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from rampart_fl.services.aggregator.api.deps import (
    ActorDep,
    OperatorDep,
    RunDep,
    RuntimeDep,
    check_run_id,
)
from rampart_fl.services.aggregator.api.links import OF_RUN
from rampart_fl.services.aggregator.api.routes import PROBLEMS, problems
from rampart_fl.services.aggregator.api.routes.clients import ReasonQuery
from rampart_fl.services.aggregator.api.runtime import Runtime
from rampart_fl.services.aggregator.state.redis_records import RunSummary
from rampart_fl.services.aggregator.state.run_registry import number_of
from rampart_fl.shared.errors import ConfigurationError, Unavailable
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.start import RUN_ID
from rampart_fl.shared.protocol import refusals
from rampart_fl.shared.protocol.estimates import Estimate
from rampart_fl.shared.protocol.reasons import NO_REASON
from rampart_fl.shared.protocol.runs import LIVE, CheckRequest, RunInfo, RunRequest

router = APIRouter(prefix="/v1/runs", tags=["runs"], responses=PROBLEMS, dependencies=[OperatorDep])
RUN_NUMBER = "^[0-9]{1,9}$"
"""The form of a run's number, which is the last part of its id."""
NAMED = 3
"""If evaluations are missing, the text about them names at most this number of clients."""
CHECKED = 100
"""If at most this number of evaluations are missing, the text leaves out clients without a valid
token. If more are missing, the text counts clients without a valid token, too, because thousands of
checks of tokens would delay other requests."""
BETWEEN_ROUNDS = {"joining", "published", "failed"}
"""The phases in which a run can wait until a client can be selected."""
PATIENCE = 30.0
"""Maximum time in seconds for which the API waits for a worker to check an experiment."""


@router.get("", responses=problems(refusals.RunNotFound))
async def runs(
    runtime: RuntimeDep,
    before: Annotated[
        str | None,
        Query(
            description="list only runs that were submitted before the run with this id or number",
            json_schema_extra={"pattern": f"{RUN_ID}|{RUN_NUMBER}"},
        ),
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="number of newest runs to list")] = 100,
) -> list[RunInfo]:
    """Lists the newest runs in the order of submission, and what each run waits for."""
    queue, current = await queued_and_current(runtime)
    entries = await runtime.stores.runs.entries()
    last = inf if before is None else await number_before(runtime, before, entries)
    page = [info for info in entries if number_of(info.run) < last][-limit:]
    return list(
        await asyncio.gather(*(current_info(runtime, info, queue, current) for info in page))
    )


@router.post(
    "",
    status_code=201,
    responses={
        200: {"model": RunInfo, "description": "The run that was already submitted with this key"},
        201: {**OF_RUN},
        **problems(refusals.InvalidExperiment, refusals.Conflict),
    },
)
async def submit(
    runtime: RuntimeDep, actor: ActorDep, body: RunRequest, response: Response
) -> RunInfo:
    """Submits an experiment; its run starts after all runs that were submitted earlier.

    A worker checks the experiment. Submissions with the same key create only one run, so a caller
    can safely repeat a request whose response was lost. A key that was used for another experiment
    is refused.
    """
    await runtime.require_ready()
    experiment, _ = await check(runtime, body.experiment)
    by, wait = actor.because(body.reason), body.wait_seconds
    info, new = await runtime.stores.runs.submit(
        experiment,
        body.submission or uuid.uuid4().hex,
        by,
        body.name,
        None if wait is None else by.time + wait,
    )
    if not new:
        if info.experiment != experiment.digest():
            raise refusals.Conflict(
                f"run {info.run} was submitted with this key, but with another experiment"
            )
        response.status_code = 200
    return await run_info(runtime, info.run)


@router.post("/check", responses=problems(refusals.InvalidExperiment))
async def check_experiment(runtime: RuntimeDep, body: CheckRequest) -> Estimate:
    """Validates an experiment as `submit` does, and estimates its memory, disk space and traffic.

    Nothing is submitted.
    """
    await runtime.require_ready()
    _, estimate = await check(runtime, body.experiment)
    return estimate


@router.get("/{run}", responses=problems(refusals.RunNotFound))
async def one_run(runtime: RuntimeDep, run: RunDep) -> RunInfo:
    """Shows one run: its state, its round, and what it waits for."""
    return await run_info(runtime, run.run)


@router.delete(
    "/{run}", status_code=204, responses=problems(refusals.RunNotFound, refusals.RunCurrent)
)
async def delete_run(
    runtime: RuntimeDep, actor: ActorDep, run: RunDep, reason: ReasonQuery = NO_REASON
) -> None:
    """Deletes a run that has ended or is queued, with its records, its models and its updates."""
    answer = await runtime.stores.runs.delete(run.run, actor.because(reason))
    if answer == "unknown":
        raise refusals.RunNotFound(f"there is no run {run.run}")
    if answer == "current":
        raise refusals.RunCurrent(f"run {run.run} is being executed; stop it first")
    runtime.hub.deletions += 1


async def number_before(runtime: Runtime, before: str, entries: list[RunInfo]) -> int:
    """The number of a run, given its id or number as `before`; the run may have been deleted.

    Raises:
        RunNotFound: no run was ever submitted with this number, or the run with this number has
            another id.
    """
    if not re.fullmatch(RUN_NUMBER, before):
        check_run_id(before)
    number = number_of(before)
    same = [info.run for info in entries if number_of(info.run) == number]
    renamed = same and before not in (*same, str(number))
    if renamed or not 0 < number <= await runtime.stores.runs.submission_count():
        raise refusals.RunNotFound(f"there is no run {before}")
    return number


async def check(runtime: Runtime, source: dict[str, Any] | str) -> tuple[Experiment, Estimate]:
    """Lets a worker check an experiment; returns the experiment and an estimate of its needs.

    The estimate states the memory, disk space and traffic that the experiment needs.

    Args:
        runtime: the objects that all requests of the process share.
        source: the experiment as a nested dictionary, or the text of its TOML file.
    Raises:
        InvalidExperiment: the experiment cannot be run; the error says why.
        Unavailable: no worker answered in time.
    """
    try:
        tables = Experiment.tables_of(source) if isinstance(source, str) else source
        Experiment.from_tables(tables)
    except ConfigurationError as error:
        raise refusals.InvalidExperiment(error.detail) from None
    ask = uuid.uuid4().hex
    until = time.monotonic() + PATIENCE
    with runtime.hub.listen(ask) as wait:
        await runtime.stores.checks.ask(ask, json.dumps(tables))
        answer = None
        while answer is None and time.monotonic() < until:
            await wait(until - time.monotonic())
            answer = await runtime.stores.checks.result(ask)
            if runtime.hub.closing:
                break
    if answer is None:
        raise Unavailable("no worker has checked the experiment in time")
    result = json.loads(answer)
    if "refused" in result:
        raise refusals.InvalidExperiment(result["refused"])
    estimate = Estimate.model_validate(result["estimate"])
    return Experiment.from_tables(result["experiment"]), estimate


async def run_info(runtime: Runtime, run: str) -> RunInfo:
    """A run's entry as operators see it, including what the run waits for.

    Raises:
        RunNotFound: there is no such run.
    """
    queue, current = await queued_and_current(runtime)
    info = await runtime.stores.runs.entry(run)
    if info is None:
        raise refusals.RunNotFound(f"there is no run {run}")
    return await current_info(runtime, info, queue, current)


async def queued_and_current(runtime: Runtime) -> tuple[list[str], str | None]:
    """The queued runs, and the run that is executed now.

    Callers must read the runs' entries only after this call has returned. An entry that was read
    before this call might still say that the current run is queued.
    """
    return await runtime.stores.runs.queue(), await runtime.stores.runs.current()


async def current_info(
    runtime: Runtime, info: RunInfo, queue: list[str], current: str | None
) -> RunInfo:
    """Completes a run's entry with the run's current state, and with what the run waits for.

    Args:
        runtime: the objects that all requests of the process share.
        info: the run's entry in the registry.
        queue: the ids of the queued runs.
        current: the id of the run that is executed now; None if there is none.
    """
    if info.state == "queued":
        earlier = queue[: queue.index(info.run)] if info.run in queue else []
        # The queue was read before the current run's id. If the current run started in between, it
        # is also in `queue`, and `dict.fromkeys` removes the duplicate.
        runs = list(dict.fromkeys([*([current] if current else []), *earlier]))
        others = len(runs) - 1
        more = f" and {others} more run{'s' if others > 1 else ''}" if others else ""
        if runs:
            waits = f"the end of {runs[0]}{more}"
        else:
            waits = await runtime.stores.of_run(info.run).state.wait_reason() or "a worker"
        return info.model_copy(update={"waits_for": waits})
    if info.state not in LIVE:
        return info
    stores = runtime.stores.of_run(info.run)
    summary = await stores.state.summary()
    if summary is None or summary.phase == "done":
        return info
    members, evicted = await stores.members.slots(), await stores.evictions.evicted()
    return info.model_copy(
        update={
            "state": summary.status,
            "round": summary.round,
            "clients": len(members),
            "evicted": len(evicted.keys() & members.keys()),
            "waits_for": await cause_of_wait(runtime, info.run, summary),
        }
    )


async def cause_of_wait(runtime: Runtime, run: str, state: RunSummary) -> str:
    """Why a started run waits before its next round or its end; empty if it does not wait."""
    stores = runtime.stores.of_run(run)
    held = await stores.state.wait_reason()
    if not held and state.phase == "evaluating":
        return await _missing_evaluations(runtime, run)
    if held or state.phase not in BETWEEN_ROUNDS:
        return held
    members = await stores.members.slots()
    if members and state.status == "running":
        evicted = await stores.evictions.evicted()
        facts = await runtime.stores.clients.facts([c for c in members if c not in evicted])
        limit = runtime.settings.offline_after
        # Requests are stored with a delay, so clients without a stored request may be online.
        if facts and all((one.silent or 0.0) >= limit for one in facts.values()):
            return f"clients: 0 of {len(facts)} members are online"
    if state.phase != "joining":
        return ""
    experiment = await runtime.stores.runs.experiment(run)
    willing = await stores.members.acceptances()
    wanted = experiment.clients_to_start(late=False)
    return f"clients: {len(willing)} of {wanted} have accepted"


async def _missing_evaluations(runtime: Runtime, run: str) -> str:
    """The online clients that have not yet evaluated the final models; empty if there are none."""
    clients, limit = runtime.stores.clients, runtime.settings.offline_after
    silences, holders = await clients.silences(), await runtime.stores.of_run(run).tickets.holders()
    online = sorted(client for client in holders if silences.get(client, limit) < limit)
    absent = await clients.without_token(online) if len(online) <= CHECKED else set[str]()
    missing = [client for client in online if client not in absent]
    more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
    return f"the evaluations of {', '.join(missing[:NAMED])}{more}" if missing else ""
