"""The route that sends models as safetensors to operators and to authorized clients."""

from typing import Annotated

from fastapi import APIRouter, Header, Path, Response

from rampart_fl.services.aggregator.api.deps import CallerDep, RunDep, RuntimeDep
from rampart_fl.services.aggregator.api.model_responses import model_response
from rampart_fl.services.aggregator.api.openapi_parts import MODEL, MODEL_ETAG
from rampart_fl.services.aggregator.api.routes import PROBLEMS, problems
from rampart_fl.services.aggregator.api.routes.tickets import ticket_in
from rampart_fl.shared.protocol import refusals
from rampart_fl.shared.protocol.messages import DIGEST

router = APIRouter(prefix="/v1/runs/{run}", tags=["training"], responses=PROBLEMS)


@router.get(
    "/models/{name}",
    response_class=Response,
    responses={
        200: {"description": "The model", "content": MODEL, "headers": MODEL_ETAG},
        304: {"description": "The client already has the model", "headers": MODEL_ETAG},
        **problems(
            *(refusals.NotFound, refusals.RunNotFound, refusals.NotStarted),
            *(refusals.NotMember, refusals.Evicted),
        ),
    },
)
async def model(
    runtime: RuntimeDep,
    caller: CallerDep,
    run: RunDep,
    name: Annotated[
        str, Path(pattern=rf"^(global|reference|{DIGEST[1:-1]})$", examples=["global"])
    ],
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Sends the model with the given digest or name.

    A client may download the models that its ticket names. It may also download the run's first
    model, if this model is not initialized from the experiment's seed. A client that is evicted or
    barred may download nothing.
    """
    digest, caching = name, "immutable, max-age=31536000"
    if name in {"global", "reference"}:
        caching = "no-cache"  # Every round changes the model of this name.
        snapshot = (await run.state()).snapshot
        digest = snapshot.global_model if name == "global" else snapshot.reference
    if caller is not None:
        allowed = await ticket_in(runtime, caller, run)
        if allowed is None or allowed.kind == "offer":
            raise refusals.NotMember(f"{caller} does not take part in run {run.run}")
        # A barred client gets an `evicted` ticket even if it was never a member.
        if allowed.kind == "evicted":
            raise refusals.Evicted(allowed.reason)
        initial = (await run.state()).snapshot.initial
        if digest not in {*allowed.models.values(), initial}:
            raise refusals.Forbidden("a client may load only the models that its ticket names")
    headers = {"ETag": f'"{digest}"', "Cache-Control": f"private, {caching}"}
    if if_none_match is not None and f'"{digest}"' in if_none_match:
        return Response(status_code=304, headers=headers)
    return await model_response(runtime, run, digest, headers)
