"""Dependencies that identify a route's caller; they are async, so that none needs a thread."""

import time
from typing import Annotated, cast

from fastapi import Depends, Request
from fastapi.security import HTTPBearer

from rampart_fl.services.aggregator.api.identities import Known
from rampart_fl.services.aggregator.api.runtime import Runtime
from rampart_fl.shared.protocol.refusals import Forbidden, Malformed, Unauthorized
from rampart_fl.shared.runtime.tokens import matches, token_hash


async def get_runtime(request: Request) -> Runtime:
    """The parts that all requests of the process share."""
    return cast(Runtime, request.app.state.runtime)


RuntimeDep = Annotated[Runtime, Depends(get_runtime)]


SCHEME = HTTPBearer(auto_error=False, description="a client's, an operator's or a join token")


async def bearer(request: Request, _: Annotated[object, Depends(SCHEME)]) -> str:
    """The bearer token in the Authorization header."""
    given = request.headers.getlist("authorization")
    if len(given) > 1:
        raise Malformed("more than one Authorization header")
    scheme, _, token = "".join(given).partition(" ")
    if scheme.lower() != "bearer" or not 16 <= len(token) <= 512:
        raise Unauthorized("an Authorization header with a bearer token is needed")
    return token


Bearer = Annotated[str, Depends(bearer)]


async def identify(runtime: RuntimeDep, token: Bearer) -> Known:
    """The client that the token belongs to; only the token identifies a client."""
    known = await runtime.identities.of(token_hash(token))
    if known is None:
        if matches(token, runtime.operator_hash):
            raise Forbidden("an operator's token cannot act as a client")
        raise Unauthorized("unknown or revoked client token")
    if known.expires_at < time.time():
        raise Unauthorized("this client token has expired; rotate a token before it expires")
    runtime.hub.saw(known.client)
    return known


KnownDep = Annotated[Known, Depends(identify)]


async def client_id(known: KnownDep) -> str:
    """The id of the client that sent the request."""
    return known.client


ClientDep = Annotated[str, Depends(client_id)]


async def require_operator(runtime: RuntimeDep, token: Bearer) -> None:
    """Refuses everyone but operators."""
    if matches(token, runtime.operator_hash):
        return
    if await runtime.identities.of(token_hash(token)) is not None:
        raise Forbidden("this request needs an operator's token")
    raise Unauthorized("unknown token")


OperatorDep = Depends(require_operator)


async def client_or_operator(runtime: RuntimeDep, token: Bearer) -> str | None:
    """The id of the client that sent the request, or None for an operator."""
    if matches(token, runtime.operator_hash):
        return None
    return (await identify(runtime, token)).client


CallerDep = Annotated[str | None, Depends(client_or_operator)]
