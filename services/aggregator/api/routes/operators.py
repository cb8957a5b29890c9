"""Routes that add, list and revoke operators, and return the caller's own name and role."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from rampart_fl.services.aggregator.api.deps import ActorDep, OperatorDep, RuntimeDep
from rampart_fl.services.aggregator.api.routes import PROBLEMS, problems
from rampart_fl.services.aggregator.state.operator_store import OWNER
from rampart_fl.shared.protocol import refusals
from rampart_fl.shared.protocol.operators import (
    OPERATOR_NAME,
    OperatorInfo,
    OperatorRequest,
    OperatorToken,
    WhoAmI,
)
from rampart_fl.shared.protocol.reasons import NO_REASON, Reason
from rampart_fl.shared.runtime.tokens import mint_repeatably, token_hash

router = APIRouter(prefix="/v1", tags=["operators"], responses=PROBLEMS)


@router.get("/whoami")
async def whoami(actor: ActorDep) -> WhoAmI:
    """Returns the name and the role of the operator that sent the request."""
    return WhoAmI(name=actor.name, role=actor.role)


@router.get("/operators", dependencies=[OperatorDep])
async def operators(runtime: RuntimeDep) -> list[OperatorInfo]:
    """Lists the named operators, including those whose tokens are revoked or have expired.

    The list does not include the operator `owner`, whose token is a setting of the aggregator.
    """
    records = await runtime.stores.operators.records()
    return [
        OperatorInfo(
            name=name,
            role=record.role,
            created_at=record.created_at,
            created_by=record.created_by,
            expires_at=record.expires_at,
            revoked_at=record.revoked_at,
        )
        for name, record in records.items()
    ]


@router.post("/operators", status_code=201, responses=problems(refusals.Conflict))
async def add_operator(
    runtime: RuntimeDep, actor: ActorDep, body: OperatorRequest
) -> OperatorToken:
    """Adds an operator, and makes the operator's token, which is shown only once.

    If the response is lost, a repeated request with the same `key` gets the same response. Once an
    operator's token is revoked or has expired, the operator's name can be reused.
    """
    by = actor.because(body.reason)
    (token,) = mint_repeatably(1, body.key, f"operator {body.model_dump_json()}")
    expires_at = None if body.lifetime_seconds is None else by.time + body.lifetime_seconds
    taken = refusals.Conflict(f"operator {body.name} already exists; revoke its token first")
    if body.name == OWNER:
        raise taken
    answer, record = await runtime.stores.operators.add(
        body.name, body.role, token_hash(token), expires_at, by
    )
    if answer == "taken":
        raise taken
    if answer == "over":
        raise refusals.Conflict("the token of this key was revoked or expired; use a new key")
    return OperatorToken(
        name=body.name,
        role=record.role,
        created_at=record.created_at,
        created_by=record.created_by,
        expires_at=record.expires_at,
        token=token,
    )


@router.delete("/operators/{name}", status_code=204, responses=problems(refusals.NotFound))
async def revoke_operator(
    runtime: RuntimeDep,
    actor: ActorDep,
    name: Annotated[str, Path(pattern=OPERATOR_NAME, examples=["ada"])],
    reason: Annotated[Reason, Query(examples=["left the team"])] = NO_REASON,
) -> None:
    """Revokes an operator's token: refuses later requests, and closes open event streams."""
    if name == OWNER:
        raise refusals.Forbidden(
            "the owner's token is a setting: change RAMPART_OPERATOR_TOKEN, and restart the "
            "aggregator"
        )
    answer = await runtime.stores.operators.revoke(name, actor.because(reason))
    if answer == "unknown":
        raise refusals.NotFound(f"no operator {name}")
