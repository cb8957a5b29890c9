"""Routes through which clients upload updates, probes and measurements."""

import hashlib
import time
import uuid
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Request, Response

from rampart_fl.services.aggregator.api.admission import (
    Body,
    Limits,
    check_encoding,
    check_length,
    check_update,
)
from rampart_fl.services.aggregator.api.deps import (
    AnyoneDep,
    ClientDep,
    KnownDep,
    MemberDep,
    RunDep,
    RuntimeDep,
    check_again,
    record_presence,
    require_member,
)
from rampart_fl.services.aggregator.api.identities import TokenOwner
from rampart_fl.services.aggregator.api.model_responses import model_response
from rampart_fl.services.aggregator.api.openapi_parts import (
    MODEL,
    MODEL_ETAG,
    UPLOAD,
    UPLOAD_HEADERS,
)
from rampart_fl.services.aggregator.api.routes import PROBLEMS, problems
from rampart_fl.services.aggregator.api.routes.tickets import (
    IN_HEADER,
    POLLS,
    TICKET_FOR_UPLOAD,
    PreferencesDep,
    await_ticket,
    ticket_response,
)
from rampart_fl.services.aggregator.api.run_parts import RunParts
from rampart_fl.services.aggregator.api.runtime import Runtime
from rampart_fl.services.aggregator.state.redis_records import ClientRunState
from rampart_fl.shared.errors import Unavailable
from rampart_fl.shared.protocol import refusals, wire
from rampart_fl.shared.protocol.messages import ClientReport, Evaluation, Receipt, Ticket

router = APIRouter(
    prefix="/v1/runs/{run}", tags=["training"], responses=problems(refusals.RunNotFound)
)
heartbeats = APIRouter(prefix="/v1", tags=["training"], responses=PROBLEMS)
CLOSED = ("aggregating", "published", "failed", "evaluating", "done")
"""Phases in which the current round accepts no more updates, unless the policy is buffered."""
BODY = (
    refusals.LengthRequired,
    refusals.InvalidUpdate,
    refusals.NotFinite,
    refusals.InvalidClaim,
)
"""Refusals of an update in a request's body. `PROBLEMS` has the refusals that any request can
get."""


@router.put(
    "/rounds/{round}/evaluation",
    response_model=Receipt,
    responses=problems(
        refusals.NotMember,
        refusals.Evicted,
        refusals.Conflict,
        refusals.NoTicket,
        refusals.Late,
        refusals.InvalidClaim,
    ),
)
async def evaluation(
    client: ClientDep,
    run: RunDep,
    round: Annotated[int, Path(ge=0, le=10**9, examples=[3])],  # noqa: A002 - the path's name
    body: Evaluation,
) -> Receipt:
    """Records what a client measured with the final models."""
    standing = await run.stores.tickets.standing(client)
    if await run.stores.uploads.receipt(round, "evaluation", client) is None:
        check_standing(run, standing, round, "evaluation")
    digest = hashlib.sha256(body.model_dump_json().encode()).hexdigest()
    receipt = Receipt(
        round=round, kind="evaluation", client=client, digest=digest, metrics=body.metrics
    )
    return await record(run, receipt)


@router.put(
    "/rounds/{round}/{kind}",
    response_model=Receipt | Ticket,
    responses={
        200: {
            "description": "The receipt. With `Prefer: wait=N`, it can also be the client's next "
            "ticket, or the model that this ticket names; the receipt is then in a header.",
            "content": MODEL,
            "headers": UPLOAD_HEADERS,
        },
        **problems(
            *(refusals.NotMember, refusals.Evicted, refusals.Conflict),
            *(refusals.NoTicket, refusals.Late),
            *BODY,
        ),
    },
    openapi_extra=UPLOAD,
)
async def upload(
    request: Request,
    runtime: RuntimeDep,
    known: KnownDep,
    run: RunDep,
    preferences: PreferencesDep,
    round: Annotated[int, Path(ge=0, le=10**9, examples=[3])],  # noqa: A002 - the path's name
    kind: Literal["update", "probe"],
) -> Response:
    """Accepts an update or an answer to a probe, as safetensors with a report in the metadata.

    A 2xx response means that the bytes are durable. If a client sends the same bytes again, it gets
    the same receipt.

    With `Prefer: wait=N`, the aggregator waits up to N seconds for the client's next ticket before
    it responds. If the client gets a ticket in time, the response is the same as that of
    `/v1/ticket`; in addition, the header `Rampart-Receipt` contains the receipt. With `Prefer`, a
    client therefore needs only one request per round. If there is no ticket after N seconds, the
    response is the receipt. Clients that need the receipt immediately omit `Prefer`.
    """
    outcome = "failed"
    try:
        receipt = await take_upload(request, runtime, run, known, round, kind)
        outcome = "accepted"
    except refusals.Refusal as refusal:
        outcome = refusal.slug
        if isinstance(refusal, refusals.Late) and kind == "update":
            await run.stores.uploads.note_late(known.client, round)
        raise
    finally:
        runtime.metrics.uploads.labels(kind, outcome).inc()
    text = receipt.model_dump_json()
    if preferences.patience and len(text) <= IN_HEADER and runtime.hub.count(known.client) < POLLS:
        started = time.perf_counter()
        record_presence(request, runtime, known)  # The upload may have taken long.
        ticket = await await_ticket(
            runtime,
            known,
            run.run,
            preferences.patience,
            lambda candidate: candidate.kind != "wait",
        )
        request.state.held = time.perf_counter() - started
        if ticket is not None:
            answer = await ticket_response(runtime, ticket, preferences.held)
            answer.headers[wire.RECEIPT_HEADER] = text
            return answer
    return Response(text, media_type="application/json")


async def take_upload(
    request: Request,
    runtime: Runtime,
    run: RunParts,
    known: TokenOwner,
    round_: int,
    kind: Literal["update", "probe"],
) -> Receipt:
    """Checks the request's headers and the client's ticket, then reads and records the body."""
    length, zstd, limits = await bounds_of_body(request, runtime, run)
    standing = await run.stores.tickets.standing(known.client, (round_, kind))
    held = standing.receipt
    if held is None or standing.eviction is not None:
        check_standing(run, standing, round_, kind)
    definition = await run.definition()
    cap = known.sample_cap or definition.experiment.server.sample_cap

    def judge(body: Body) -> ClientReport | None:
        if held is None:
            return check_update(body, definition.spec, cap)
        if held.digest != body.digest:
            raise refusals.Conflict(
                "the server has already accepted another upload for this ticket"
            )
        return None

    async with runtime.upload_permits.take(known.client):
        stream = request.stream()
        admitted = await run.admission.admit(stream, length, zstd, limits, judge)
    runtime.metrics.bytes_in.inc(admitted.size)
    await check_again(runtime, known)
    if held is not None:
        return held
    assert admitted.report is not None
    assert standing.ticket is not None
    assert standing.summary is not None
    return await record(
        run,
        Receipt(
            round=round_,
            kind=kind,
            client=known.client,
            digest=admitted.digest,
            samples=admitted.report.samples,
            metrics=admitted.report.metrics,
            started=standing.ticket.models["model"],
            closing_round=standing.summary.round,
            size=admitted.size,
            diverged=admitted.report.diverged,
        ),
    )


async def bounds_of_body(
    request: Request, runtime: Runtime, run: RunParts
) -> tuple[int, bool, Limits]:
    """A body's length, whether the body is compressed with zstd, and the limits on the body."""
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media not in {wire.MEDIA_TYPE, "application/octet-stream"}:
        raise refusals.UnsupportedMedia(f"content type {media[:80]!r}; send {wire.MEDIA_TYPE}")
    zstd = check_encoding(request.headers.get("content-encoding"))
    spec = (await run.definition()).spec
    limits = Limits(wire.size_cap(spec), runtime.settings.body_idle, runtime.settings.body_rate)
    return check_length(request.headers.get("content-length"), limits.size), zstd, limits


def check_standing(run: RunParts, standing: ClientRunState, round_: int, kind: str) -> None:
    """Refuses an upload that the Redis script `ACCEPT` would refuse, before the body is read."""
    summary, held, out = standing.summary, standing.ticket, standing.barred or standing.eviction
    if summary is None:
        raise run.not_started
    if standing.slot is None:
        raise refusals.NotMember(f"this client does not take part in run {run.run}")
    if out is not None:
        raise refusals.Evicted(out.reason)
    if held is None or held.round != round_ or held.kind != TICKET_FOR_UPLOAD[kind]:
        # At the end of a round, its tickets are deleted unless the policy is buffered.
        over = summary.phase in CLOSED and summary.policy != "buffered"
        if round_ < summary.round or (over and round_ == summary.round and kind != "evaluation"):
            raise refusals.Late(f"round {round_} is closed; the current round is {summary.round}")
        raise refusals.NoTicket(
            f"this client has no ticket for an upload of kind {kind!r} in round {round_}"
        )


async def record(run: RunParts, receipt: Receipt) -> Receipt:
    """Records a stored upload, and returns its receipt.

    Raises:
        Refusal: the client was evicted, the round has closed, the server has already accepted
            this upload with other bytes, or no ticket asks for the upload.
    """
    answer, stands = await run.stores.uploads.accept(receipt)
    if stands is not None:
        return stands
    errors: dict[str, refusals.Refusal] = {
        "evicted": refusals.Evicted("this client was evicted"),
        "conflict": refusals.Conflict(
            "the server has already accepted another upload for this ticket"
        ),
        "late": refusals.Late(f"round {receipt.round} has closed"),
        "no-ticket": refusals.NoTicket("no ticket asks this client for this upload"),
    }
    raise errors[answer]


@heartbeats.post("/heartbeat", status_code=204)
async def heartbeat(client: ClientDep) -> None:
    """Records that this client is alive; clients send heartbeats during long training."""


@router.post(
    "/customize",
    response_class=Response,
    responses={
        200: {"description": "The model", "content": MODEL, "headers": MODEL_ETAG},
        **problems(
            *(refusals.NotMember, refusals.Evicted, refusals.NotFound),
            *(refusals.NotStarted, refusals.RunOver),
            *BODY,
        ),
    },
    dependencies=[MemberDep],
    openapi_extra=UPLOAD,
)
async def customize(
    request: Request, runtime: RuntimeDep, caller: AnyoneDep, run: RunDep
) -> Response:
    """Makes a customized model outside of a round.

    The body is the update that the client computed from the reference model
    (`/v1/runs/{run}/models/reference`). The response is the customized model as safetensors.
    Operators and members of the run may send this request until the run ends. The uploaded update
    does not enter any round.
    """
    if isinstance(caller, TokenOwner):
        name = key = caller.client
        attempts = await runtime.stores.attempts.count(f"customize:{name}", 60, time.time())
        if attempts > runtime.settings.customizations_per_minute:
            raise refusals.TooMany("too many requests for customized models", retry_after=60)
    else:
        name = "operator"  # This id is reserved, so no client has it.
        key = f":{caller.name}"
    length, zstd, limits = await bounds_of_body(request, runtime, run)
    definition = await run.definition()
    if (await run.summary()).phase == "done":
        raise refusals.RunOver(f"run {run.run} has ended, so no worker can make the model")
    cap = definition.experiment.server.sample_cap
    async with runtime.customization_permits.take(key):
        admitted = await run.admission.admit(
            request.stream(), length, zstd, limits, lambda w: check_update(w, definition.spec, cap)
        )
    digest = admitted.digest
    ask = uuid.uuid4().hex
    with runtime.hub.listen(ask) as wait:
        await run.stores.customizations.request(ask, name, digest)
        made = None
        for _ in range(3):
            await wait(10.0)
            made = await run.stores.customizations.result(ask)
            if made is not None:
                break
    if made is None:
        raise Unavailable("no worker made the customized model in time")
    if isinstance(caller, TokenOwner):  # The client may have lost its rights meanwhile.
        await check_again(runtime, caller)
        await require_member(caller.client, run)
    return await model_response(runtime, run, made, {"ETag": f'"{made}"'})
