"""Dependencies that identify the caller; all are async, so FastAPI starts no threads for them."""

import re
import time
from typing import Annotated, cast

from fastapi import Depends, Path, Query, Request
from fastapi.security import HTTPBearer

from rampart_fl.services.aggregator.api.identities import TokenOwner
from rampart_fl.services.aggregator.api.operator_tokens import Actor
from rampart_fl.services.aggregator.api.run_parts import RunParts
from rampart_fl.services.aggregator.api.runtime import Runtime
from rampart_fl.shared.experiment.start import RUN_ID
from rampart_fl.shared.protocol.refusals import (
    Evicted,
    Forbidden,
    Malformed,
    NotMember,
    ReadOnly,
    RunNotFound,
    Unauthorized,
)
from rampart_fl.shared.runtime.tokens import token_hash


async def get_runtime(request: Request) -> Runtime:
    """The objects that all requests of the process share."""
    return cast(Runtime, request.app.state.runtime)


RuntimeDep = Annotated[Runtime, Depends(get_runtime)]


async def await_conversion(runtime: RuntimeDep) -> None:
    """Waits until the stored state has the schema of this version."""
    await runtime.await_conversion()


ConvertedDep = Depends(await_conversion)
SCHEME = HTTPBearer(auto_error=False, description="a client or operator token, or a join token")


async def bearer(request: Request, _: Annotated[object, Depends(SCHEME)]) -> str:
    """The bearer token in the Authorization header."""
    headers = request.headers.getlist("authorization")
    if len(headers) > 1:
        raise Malformed("more than one Authorization header")
    scheme, _, token = "".join(headers).partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthorized("an Authorization header with a bearer token is needed")
    if not 16 <= len(token) <= 512:  # A valid token has 16 to 512 characters.
        raise Unauthorized(UNKNOWN)
    return token


Bearer = Annotated[str, Depends(bearer)]
PRODUCT = re.compile(r"[!-~]{1,64}(?= |$)")
"""The name and version of a product, as in `rampart-fl/0.1`."""
UNKNOWN = "unknown token"
UNKNOWN_CLIENT = "unknown or revoked client token"


async def identify(request: Request, runtime: RuntimeDep, token: Bearer) -> TokenOwner:
    """The client that sent the request; refuses a token that is not a valid client token."""
    return record_presence(request, runtime, await authenticate(runtime, token))


AwayParameter = Annotated[
    bool,
    Query(
        description="true if the client is a member of the run but does not train now. The client "
        "then counts as offline, and rounds do not select it. With the client's next request "
        "without `away=true`, it counts as online again."
    ),
]


async def identify_unless_away(
    request: Request, runtime: RuntimeDep, token: Bearer, away: AwayParameter = False
) -> TokenOwner:
    """Like `identify`, but the client counts as offline if its request has `away=true`."""
    return record_presence(request, runtime, await authenticate(runtime, token), away)


async def authenticate(runtime: Runtime, token: str) -> TokenOwner:
    """The client with this token; refuses a token that is not a valid client token."""
    known = await runtime.identities.of(token_hash(token))
    if known is None:
        if await runtime.operators.of(token) is not None:
            raise Forbidden("an operator's token cannot act as a client")
        raise Unauthorized(UNKNOWN_CLIENT)
    check_expiry(known)
    return known


def check_expiry(known: TokenOwner) -> None:
    """Refuses a client whose token has expired."""
    if known.expires_at < time.time():
        raise Unauthorized("this token has expired; a client must rotate its token in time")


def software_of(request: Request) -> str:
    """The first product in the `User-Agent` header; "" if this product is missing or too long."""
    match = PRODUCT.match(request.headers.get("user-agent", ""))
    return "" if match is None else match.group()


def record_presence(
    request: Request, runtime: Runtime, known: TokenOwner, away: bool = False
) -> TokenOwner:
    """Records a request: the client then counts as online, or as offline if `away` is true."""
    runtime.hub.saw(known.client, software_of(request), away)
    return known


async def check_again(runtime: Runtime, known: TokenOwner) -> None:
    """Refuses a client whose token was revoked or replaced after the request began."""
    if not await runtime.identities.still_valid(known):
        raise Unauthorized(UNKNOWN_CLIENT)


KnownDep = Annotated[TokenOwner, Depends(identify)]
KnownUnlessAwayDep = Annotated[TokenOwner, Depends(identify_unless_away)]


async def client_id(known: KnownDep) -> str:
    """The id of the client that sent the request."""
    return known.client


ClientDep = Annotated[str, Depends(client_id)]


async def identify_operator(request: Request, runtime: RuntimeDep, token: Bearer) -> Actor:
    """The operator that sent the request; refuses a viewer's request unless its method is GET."""
    actor = await runtime.operators.of(token)
    if actor is not None:
        return check_role(request, actor)
    if await runtime.identities.of(token_hash(token)) is not None:
        raise Forbidden("this request needs an operator's token")
    raise Unauthorized(UNKNOWN)


def check_role(request: Request, actor: Actor) -> Actor:
    """Refuses a viewer's request unless its method is GET."""
    if actor.role == "viewer" and request.method != "GET":
        raise ReadOnly(f"{actor.name} is a viewer; this request needs the role operator")
    return actor


OperatorDep = Depends(identify_operator)
ActorDep = Annotated[Actor, OperatorDep]


async def identify_anyone(
    request: Request, runtime: RuntimeDep, token: Bearer
) -> TokenOwner | Actor:
    """The client or the operator that sent the request."""
    known = await runtime.identities.of(token_hash(token))
    if known is not None:
        check_expiry(known)
        return record_presence(request, runtime, known)
    actor = await runtime.operators.of(token)
    if actor is None:
        raise Unauthorized(UNKNOWN_CLIENT)
    return check_role(request, actor)


AnyoneDep = Annotated[TokenOwner | Actor, Depends(identify_anyone)]


async def client_or_operator(caller: AnyoneDep) -> str | None:
    """The id of the client that sent the request, or None for an operator."""
    return caller.client if isinstance(caller, TokenOwner) else None


CallerDep = Annotated[str | None, Depends(client_or_operator)]


def check_run_id(run: str) -> None:
    """Raises `RunNotFound` if a text does not have the form of a run's id.

    Call this function before the text becomes part of a key. A mistyped id causes the same error as
    the id of a run that does not exist.
    """
    if not re.fullmatch(RUN_ID, run):
        raise RunNotFound(f"there is no run {run[:80]}")


async def of_path(
    runtime: RuntimeDep,
    run: Annotated[str, Path(examples=["digits-benign-1"], json_schema_extra={"pattern": RUN_ID})],
) -> RunParts:
    """The `RunParts` of the run that the request's path names."""
    check_run_id(run)
    return await runtime.run(run)


RunDep = Annotated[RunParts, Depends(of_path)]
"""The `RunParts` of the run that the request's path names. Routes authenticate the caller before
they look up the run, so that only callers with a valid token can learn which runs exist."""


async def require_member(caller: CallerDep, run: RunDep) -> None:
    """Refuses clients that are barred or are not members of the run; does not refuse operators."""
    if caller is None:
        return
    standing = await run.stores.tickets.standing(caller)
    if standing.slot is None:
        raise NotMember(f"{caller} does not take part in run {run.run}")
    out = standing.barred or standing.eviction
    if out is not None:
        raise Evicted(out.reason)


MemberDep = Depends(require_member)
