"""Routes for the clients of the federation: join, list, change tokens and labels, bar, readmit."""

import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from rampart_fl.services.aggregator.api.deps import (
    UNKNOWN_CLIENT,
    ActorDep,
    AnyoneDep,
    Bearer,
    CallerDep,
    OperatorDep,
    RuntimeDep,
    software_of,
)
from rampart_fl.services.aggregator.api.identities import TokenOwner
from rampart_fl.services.aggregator.api.links import OF_CLIENT, OF_JOIN_TOKENS
from rampart_fl.services.aggregator.api.routes import PROBLEMS, problems
from rampart_fl.services.aggregator.api.runtime import Runtime
from rampart_fl.services.aggregator.state.audit_log import Attribution
from rampart_fl.services.aggregator.state.client_store import ClientRecord
from rampart_fl.services.aggregator.state.join_token_store import JoinTokenRecord
from rampart_fl.shared.protocol import refusals
from rampart_fl.shared.protocol.clients import ClientInfo
from rampart_fl.shared.protocol.messages import (
    CLIENT_ID,
    DIGEST,
    ClientId,
    Joined,
    JoinRequest,
    JoinTokenRequest,
    JoinTokens,
    LabelChange,
    ReasonBody,
    TokenChange,
)
from rampart_fl.shared.protocol.reasons import NO_REASON, Reason
from rampart_fl.shared.runtime.tokens import mint_repeatably, token_hash

router = APIRouter(prefix="/v1", tags=["clients"], responses=PROBLEMS)
ClientPath = Annotated[str, Path(pattern=CLIENT_ID, examples=["client-07"])]
ReasonQuery = Annotated[Reason, Query(examples=["a leak"])]
ROTATIONS = 20
"""Maximum number of token changes per client and minute; each change clears all token caches."""


@router.post("/join-tokens", responses={200: {**OF_JOIN_TOKENS}, **problems(refusals.Conflict)})
async def mint_join_tokens(
    runtime: RuntimeDep, actor: ActorDep, body: JoinTokenRequest
) -> JoinTokens:
    """Makes single-use join tokens for clients; shows each token only once.

    If the response is lost, the operator can repeat the request with the same `key`. The repeated
    request makes no new tokens, and its response contains the same tokens.
    """
    ids = body.client_ids
    if ids is not None and len(set(ids)) != len(ids):
        raise refusals.InvalidRequest("client_ids has the same id twice")
    if ids is not None and "count" in body.model_fields_set and body.count != len(ids):
        raise refusals.InvalidRequest(f"count is {body.count}, but client_ids has {len(ids)} ids")
    client_ids: Sequence[str | None] = ids or [None] * body.count
    request = f"join tokens {body.model_dump_json()}"
    tokens = mint_repeatably(len(client_ids), body.key, request)
    expires_at = time.time() + body.lifetime
    joins = {
        token_hash(token): JoinTokenRecord(expires_at, client_id, body.sample_cap, body.labels)
        for token, client_id in zip(tokens, client_ids, strict=True)
    }
    by = actor.because(body.reason)
    answer, expires_at = await runtime.stores.join_tokens.add(joins, by)
    if answer == "over":
        raise refusals.Conflict("join tokens of this key were used or revoked; use a new key")
    return JoinTokens(tokens=tokens, expires_at=expires_at)


@router.delete(
    "/join-tokens/{join_hash}",
    status_code=204,
    responses=problems(refusals.NotFound, refusals.Conflict),
)
async def revoke_join_token(
    runtime: RuntimeDep,
    actor: ActorDep,
    join_hash: Annotated[
        str, Path(pattern=DIGEST, description="SHA-256 of the join token", examples=["5f" * 32])
    ],
    reason: ReasonQuery = NO_REASON,
) -> None:
    """Revokes a join token that no client has used; the request is idempotent."""
    answer = await runtime.stores.join_tokens.revoke(join_hash, actor.because(reason))
    if answer == "unknown":
        raise refusals.NotFound("no such join token")
    if answer == "used":
        raise refusals.Conflict("a client has joined with this token; revoke the client's token")


@router.post(
    "/clients",
    status_code=201,
    responses={201: {**OF_CLIENT}, **problems(refusals.Conflict)},
)
async def join(request: Request, runtime: RuntimeDep, token: Bearer, body: JoinRequest) -> Joined:
    """Registers a client that presents a join token; the request is idempotent."""
    settings, now = runtime.settings, time.time()
    address = request.client.host if request.client else "unknown"
    attempts = await runtime.stores.attempts.count(f"join:{address}", 60, now)
    if attempts > settings.joins_per_minute:
        raise refusals.TooMany("too many attempts to join from this address", retry_after=60)
    await runtime.require_ready()
    fresh = f"client-{secrets.token_hex(6)}"
    answer, client_id, client = await runtime.stores.clients.join(
        token_hash(token),
        body.token_hash,
        body.client_id,
        fresh,
        now,
        now + settings.client_token_lifetime,
    )
    if answer == "taken":
        raise refusals.Conflict(f"client {client_id} already exists")
    if answer == "token-taken":
        raise refusals.Conflict("another client already uses this token")
    if client is None:
        raise refusals.Unauthorized(f"join token {answer}")
    runtime.hub.saw(client_id, software_of(request))
    return Joined(client_id=client_id, sample_cap=client.sample_cap, expires_at=client.expires_at)


@router.put(
    "/clients/{client_id}/token",
    responses=problems(refusals.NotFound, refusals.Conflict),
)
async def rotate_token(
    runtime: RuntimeDep, caller: AnyoneDep, client_id: ClientPath, body: TokenChange
) -> Joined:
    """Replaces a client's token at once, at the request of the client or of an operator."""
    now = time.time()
    if isinstance(caller, TokenOwner):
        if caller.client != client_id:
            raise refusals.Forbidden("a client may rotate only its own token")
        if await runtime.stores.attempts.count(f"rotate:{client_id}", 60, now) > ROTATIONS:
            raise refusals.TooMany("too many changes of this client's token", retry_after=60)
    by = caller.token_hash if isinstance(caller, TokenOwner) else caller.because(body.reason)
    expires = now + runtime.settings.client_token_lifetime
    await change_token(runtime, client_id, body.token_hash, expires, by)
    known = await runtime.stores.clients.record(client_id)
    assert known is not None
    return Joined(client_id=client_id, sample_cap=known.sample_cap, expires_at=expires)


@router.delete(
    "/clients/{client_id}/token",
    status_code=204,
    responses=problems(refusals.NotFound),
)
async def revoke_token(
    runtime: RuntimeDep, actor: ActorDep, client_id: ClientPath, reason: ReasonQuery = NO_REASON
) -> None:
    """Revokes a client's token; an operator can set the hash of a new token later."""
    await change_token(runtime, client_id, "", 0, actor.because(reason))


async def change_token(
    runtime: Runtime, client_id: str, hash_: str, expires: float, by: Attribution | str
) -> None:
    """Sets the hash of a client's token, or revokes the token if the hash is empty.

    Args:
        runtime: the objects that all requests of the process share.
        client_id: the client's id.
        hash_: hash of the new token.
        expires: Unix time at which the new token expires.
        by: who requests the change. For an operator, this is an `Attribution`. For the client
            itself, it is the hash of the token in the client's request.
    Raises:
        NotFound: there is no such client.
        Conflict: another client uses this token.
        Unauthorized: the token that the client presents is not valid any more.
    """
    answer = await runtime.stores.clients.change_token(client_id, hash_, expires, by)
    if answer == "unknown":
        raise refusals.NotFound(f"no client {client_id}")
    if answer == "taken":
        raise refusals.Conflict("another client already uses this token")
    if answer == "invalid":
        raise refusals.Unauthorized(UNKNOWN_CLIENT)
    runtime.hub.token_changes += 1


@router.get("/clients", dependencies=[OperatorDep])
async def clients(
    runtime: RuntimeDep,
    after: Annotated[
        ClientId | None, Query(description="list only clients whose ids come after this id")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 1000,
) -> list[ClientInfo]:
    """Lists clients in the order of their ids, with labels; shows who is online or barred."""
    records = await runtime.stores.clients.records()
    chosen = [client_id for client_id in records if after is None or client_id > after][:limit]
    return await client_infos(runtime, {client_id: records[client_id] for client_id in chosen})


async def client_infos(runtime: Runtime, known: Mapping[str, ClientRecord]) -> list[ClientInfo]:
    """Converts clients' records to the form in which operators see clients.

    Args:
        runtime: the objects that all requests of the process share.
        known: the clients' records, keyed by id.
    """
    facts = await runtime.stores.clients.facts(list(known))
    return [
        ClientInfo(
            client_id=client_id,
            registered_at=client.registered_at,
            sample_cap=client.sample_cap,
            labels=dict(client.labels),
            last_seen=facts[client_id].seen,
            online=facts[client_id].online(runtime.settings.offline_after),
            software=facts[client_id].software,
            barred=facts[client_id].barred,
            token_expires_at=client.expires_at if client.token_hash else None,
        )
        for client_id, client in known.items()
    ]


@router.get("/clients/{client_id}", responses=problems(refusals.NotFound))
async def client(runtime: RuntimeDep, caller: CallerDep, client_id: ClientPath) -> ClientInfo:
    """Shows one client; a client may see only itself."""
    if caller not in (None, client_id):
        raise refusals.Forbidden("a client may see only itself")
    record = await runtime.stores.clients.record(client_id)
    if record is None:
        raise refusals.NotFound(f"no client {client_id}")
    (info,) = await client_infos(runtime, {client_id: record})
    return info


@router.put("/clients/{client_id}/labels", responses=problems(refusals.NotFound))
async def label(
    runtime: RuntimeDep, actor: ActorDep, client_id: ClientPath, body: LabelChange
) -> ClientInfo:
    """Replaces a client's labels; later runs use labels to select their clients."""
    by = actor.because(body.reason)
    if await runtime.stores.clients.label(client_id, body.labels, by) == "unknown":
        raise refusals.NotFound(f"no client {client_id}")
    return await client(runtime, None, client_id)


@router.post("/clients/{client_id}/evict", responses=problems(refusals.NotFound))
async def evict_everywhere(
    runtime: RuntimeDep, actor: ActorDep, client_id: ClientPath, body: ReasonBody
) -> ClientInfo:
    """Bars a client from the whole federation, and evicts it from the current run."""
    by = actor.because(body.reason)
    if await runtime.stores.clients.bar(client_id, by) == "unknown":
        raise refusals.NotFound(f"no client {client_id}")
    run = await runtime.stores.runs.current()
    if run is not None:
        await runtime.stores.of_run(run).evictions.evict(client_id, by)
    return await client(runtime, None, client_id)


@router.post("/clients/{client_id}/reinstate", responses=problems(refusals.NotFound))
async def reinstate_everywhere(
    runtime: RuntimeDep, actor: ActorDep, client_id: ClientPath, body: ReasonBody
) -> ClientInfo:
    """Readmits a client to the federation's later runs, but not to a run that evicted it."""
    by = actor.because(body.reason)
    if await runtime.stores.clients.readmit(client_id, by) == "unknown":
        raise refusals.NotFound(f"no client {client_id}")
    return await client(runtime, None, client_id)
