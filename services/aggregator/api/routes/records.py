"""Routes that give operators the records of finished rounds and the matrix of all verdicts."""

import asyncio
import zlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Response
from fastapi.responses import StreamingResponse

from rampart_fl.services.aggregator.api.deps import OperatorDep, RunDep, RuntimeDep
from rampart_fl.services.aggregator.api.model_responses import model_response
from rampart_fl.services.aggregator.api.openapi_parts import BYTES, MODEL_ETAG
from rampart_fl.services.aggregator.api.round_figures import round_figures
from rampart_fl.services.aggregator.api.routes import PROBLEMS, problems
from rampart_fl.services.aggregator.api.run_parts import RunParts
from rampart_fl.services.aggregator.api.verdict_matrix import verdict_matrix
from rampart_fl.services.aggregator.state.round_entry import RoundEntry
from rampart_fl.services.aggregator.state.stored_values import read_model
from rampart_fl.shared.experiment.eviction import Decision
from rampart_fl.shared.protocol import refusals
from rampart_fl.shared.protocol.messages import ClientId
from rampart_fl.shared.protocol.stored_rounds import (
    RoundFigures,
    RoundPage,
    StoredRound,
    VerdictMatrix,
)

router = APIRouter(
    prefix="/v1/runs/{run}",
    tags=["records"],
    responses=problems(refusals.RunNotFound, refusals.NotStarted),
    dependencies=[OperatorDep],
)
LONGEST = 1000
"""The maximum number of rounds whose records or verdicts one response contains."""
SUMMED = 200
"""The maximum number of rounds that one request can summarize."""
RoundNumber = Annotated[int, Path(ge=0, le=10**9, examples=[3])]
JSON = "application/json"


@router.get(
    "/rounds", response_class=Response, responses={200: {"model": list[StoredRound]}, **PROBLEMS}
)
async def rounds(
    run: RunDep,
    since: Annotated[int, Query(ge=0, le=10**9, description="first round")] = 0,
    limit: Annotated[int, Query(ge=1, le=LONGEST, description="number of rounds")] = 100,
) -> Response:
    """Lists the records of finished rounds, oldest first; omits records that are no longer kept."""
    await run.summary()
    entries = await run.records.entries(since, since + limit - 1)

    async def send() -> AsyncIterator[bytes]:
        before = b"["
        for entry in entries.values():
            record = await run.records.record_json(entry)
            if record is not None:
                yield before + record
                before = b","
        yield b"]" if before == b"," else b"[]"

    return StreamingResponse(send(), media_type=JSON)


@router.get("/figures")
async def figures(
    runtime: RuntimeDep,
    run: RunDep,
    first: Annotated[int, Query(alias="from", ge=0, le=10**9, description="first round")] = 0,
    limit: Annotated[int, Query(ge=1, le=SUMMED, description="number of rounds")] = 100,
    client: Annotated[ClientId | None, Query(description="also summarize this client")] = None,
) -> list[RoundFigures]:
    """Summarizes finished rounds: a few metrics of each, and, on request, one client's figures.

    The metrics include the number of verdicts of each kind, the accuracies that clients report, and
    the median and the spread of the updates' norms.
    """
    await run.summary()
    entries = await run.records.entries(first, first + limit - 1)
    sums = []
    for entry in entries.values():
        record = await run.records.record_json(entry)
        if record is not None:
            summing = partial(round_figures, record, client)
            sums.append(await asyncio.get_running_loop().run_in_executor(runtime.disk, summing))
    return sums


@router.get("/rounds/{round}", responses=problems(refusals.NotFound))
async def one_round(
    runtime: RuntimeDep,
    run: RunDep,
    round: RoundNumber,  # noqa: A002 - the path's name
    decision: Annotated[Decision | None, Query(description="only verdicts of this kind")] = None,
    client: Annotated[ClientId | None, Query(description="only the verdict on this client")] = None,
    offset: Annotated[int, Query(ge=0, le=10**9, description="number of verdicts to skip")] = 0,
    limit: Annotated[int, Query(ge=1, le=10_000, description="maximum number of verdicts")] = 1000,
) -> RoundPage:
    """Shows one finished round's record: verdicts with evidence, weights, metrics and timings.

    Filters and paging apply only to the verdicts; all other fields are always complete. The weights
    with which the round mixed its models are at `/v1/runs/{run}/rounds/{round}/weights`.
    """
    data = await run.records.record_json(await find(run, round))
    if data is None:
        raise refusals.NotFound(f"the record of round {round} is no longer kept")

    def page(data: bytes) -> RoundPage:
        record = read_model(StoredRound, data)
        verdicts = [
            verdict
            for verdict in record.verdicts
            if decision in {None, verdict.decision} and client in {None, verdict.client}
        ]
        shown = {"verdicts": verdicts[offset : offset + limit], "matching": len(verdicts)}
        return RoundPage.model_construct(**{**dict(record), **shown})

    return await asyncio.get_running_loop().run_in_executor(runtime.disk, page, data)


@router.get(
    "/rounds/{round}/weights",
    response_class=Response,
    responses={
        200: {"description": "The weights", "content": BYTES, "headers": MODEL_ETAG},
        **problems(refusals.NotFound),
    },
)
async def weights(
    runtime: RuntimeDep,
    run: RunDep,
    round: RoundNumber,  # noqa: A002 - the path's name
) -> Response:
    """Sends the weights with which a finished round mixed its models, as a safetensors file.

    The file has one tensor `mixing`, float32 or float64, with a row per model and a column per
    client. The file's metadata has two JSON lists: `models` has the names of the models, and
    `clients` has the ids of the clients.
    """
    digest = (await find(run, round)).mixing
    if digest is None:
        raise refusals.NotFound(f"the server mixed no models in round {round}")
    return await model_response(runtime, run, digest, {"ETag": f'"{digest}"'})


@router.get(
    "/verdicts", response_class=Response, responses={200: {"model": VerdictMatrix}, **PROBLEMS}
)
async def verdicts(
    runtime: RuntimeDep,
    run: RunDep,
    first: Annotated[int, Query(alias="from", ge=0, le=10**9, description="first round")] = 0,
    last: Annotated[
        int | None, Query(alias="to", ge=0, le=10**9, description=f"at most {LONGEST} rounds")
    ] = None,
    client: Annotated[ClientId | None, Query(description="only this client's row")] = None,
    accept_encoding: Annotated[str, Header()] = "",
) -> Response:
    """Shows the decisions and scores of a range of rounds, one cell per client and round."""
    last = first + LONGEST - 1 if last is None else last
    if not 0 <= last - first < LONGEST:
        raise refusals.InvalidRequest(
            f"the range from {first} to {last} has {max(0, last - first + 1)} rounds; a range "
            f"must have 1 to {LONGEST} rounds"
        )
    await run.summary()
    entries = await run.records.entries(first, last)
    on_disk = partial(asyncio.get_running_loop().run_in_executor, runtime.disk)
    data = await on_disk(lambda: verdict_matrix(entries, client).model_dump_json().encode())
    headers = {"Vary": "Accept-Encoding"}
    if "gzip" in accept_encoding:
        data = await on_disk(lambda: zlib.compress(data, level=1, wbits=31))
        headers["Content-Encoding"] = "gzip"
    return Response(data, media_type=JSON, headers=headers)


async def find(run: RunParts, round_: int) -> RoundEntry:
    """The entry of a finished round.

    Raises:
        NotFound: the round has not ended, or its entry is no longer kept.
    """
    await run.summary()
    entry = await run.records.entry(round_)
    if entry is None:
        raise refusals.NotFound(f"round {round_} has not ended, or its record is no longer kept")
    return entry
