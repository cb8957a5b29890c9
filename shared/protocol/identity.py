"""A client's identity: the token it made for itself, kept on its own disk, renewed in time."""

import asyncio
import fcntl
import json
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from rampart_fl.shared.errors import ConfigurationError, RampartError
from rampart_fl.shared.protocol.client import AggregatorClient, Refused
from rampart_fl.shared.protocol.messages import Joined
from rampart_fl.shared.runtime import durable
from rampart_fl.shared.runtime.tokens import mint, token_hash

log = logging.getLogger(__name__)
SPENT = 2 / 3
"""Share of a token's life after which it is renewed."""
RETRY = 60.0
"""Seconds until a renewal that failed is tried again."""


class Identity(BaseModel):
    """Who a client is, after it joined."""

    model_config = ConfigDict(frozen=True)
    token: str
    client_id: str | None = None
    sample_cap: int = 0
    renew_at: float = 0.0
    """When the token is to be renewed."""
    next_token: str | None = None
    """The token that is to follow, while it is not known whether the aggregator knows it."""

    def with_token(self, token: str, joined: Joined) -> "Identity":
        """The identity as the aggregator confirmed it."""
        now = time.time()
        return Identity(
            token=token,
            client_id=joined.client_id,
            sample_cap=joined.sample_cap,
            renew_at=now + SPENT * (joined.expires_at - now),
        )


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keeps a client's folder to this process: two of one identity undo each other's renewals.

    The hold ends with the process, however that ends.

    Raises:
        ConfigurationError: another process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigurationError(
                f"another process runs the client of {folder}: end that one first, or give this "
                "one a folder of its own"
            ) from None
        except OSError as error:
            # Not every network disk has locks.
            log.warning("no lock on %s, another process could use it: %s", folder, error)
        yield


def _kept(path: Path) -> Identity:
    """The identity in this file; a fresh one, stored, if there is none."""
    if path.exists():
        return Identity(**json.loads(path.read_text()))
    path.parent.mkdir(parents=True, exist_ok=True)
    identity = Identity(token=mint())
    _write(path, identity)
    return identity


def _write(path: Path, identity: Identity) -> None:
    durable.replace(path, [identity.model_dump_json().encode()], 0o600)


async def establish(
    url: str,
    folder: Path,
    join_token: str | None,
    client_id: str | None = None,
    verify: str | None = None,
    patience: float = 3600.0,
) -> Identity:
    """The identity kept in a folder, or a new one by means of a join token.

    The client's own token is on disk before the join is asked for, so that a client which dies
    in between joins once.

    Raises:
        ValueError: no identity yet, and no join token.
        Refused: the join token is unknown, used by another or expired.
    """
    path = folder / "identity.json"
    identity = _kept(path)
    if identity.next_token is not None:
        return await _settle(path, identity, url, verify, patience)
    if identity.client_id is not None:
        return identity
    if join_token is None:
        raise ValueError(f"no identity in {folder} and no join token to get one")
    connection = AggregatorClient(url, join_token, patience=patience, verify=verify)
    try:
        joined = await connection.join(token_hash(identity.token), client_id)
    finally:
        await connection.close()
    identity = identity.with_token(identity.token, joined)
    _write(path, identity)
    return identity


@asynccontextmanager
async def kept_fresh(connection: AggregatorClient, folder: Path) -> AsyncIterator[None]:
    """Renews the token of the client in a folder whenever two thirds of its life are over."""
    renewing = asyncio.create_task(_renew_in_time(connection, folder))
    try:
        yield
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)


async def _renew_in_time(connection: AggregatorClient, folder: Path) -> None:
    while True:
        await asyncio.sleep(max(0.0, _kept(folder / "identity.json").renew_at - time.time()))
        try:
            await renew(connection, folder)
            log.info("token renewed")
        except (RampartError, OSError, ValueError) as error:
            # A disk that is full just now, too: one failure must not be the last attempt.
            log.warning("token not renewed: %s", error)
            await asyncio.sleep(RETRY)


async def renew(connection: AggregatorClient, folder: Path) -> Identity:
    """Replaces a client's token, at the aggregator, on its disk and in its connection.

    The new one is on disk before the aggregator hears of it, so that a client which dies in between
    finds out which of the two counts when it comes back.

    Raises:
        Refused: the token at hand counts no more.
    """
    path = folder / "identity.json"
    identity = _kept(path)
    if identity.next_token is not None:
        # An earlier renewal got no answer, or no place on the disk.
        identity = await _settle(
            path, identity, connection.url, connection.verify, connection.patience
        )
        connection.token = identity.token
    assert identity.client_id is not None
    fresh = mint()
    _write(path, identity.model_copy(update={"next_token": fresh}))
    connection.next_token = fresh
    try:
        joined = await connection.rotate(identity.client_id, token_hash(fresh))
    except Refused:
        # Perhaps an answer was lost, and this was its repetition.
        identity = await _settle(
            path, _kept(path), connection.url, connection.verify, connection.patience
        )
        if identity.token != fresh:
            raise
    else:
        # The old one counts no more, whether the disk takes the new one or not.
        connection.token = fresh
        identity = identity.with_token(fresh, joined)
        _write(path, identity)
    finally:
        connection.next_token = None
    connection.token = fresh
    return identity


async def _settle(
    path: Path, identity: Identity, url: str, verify: str | None, patience: float
) -> Identity:
    """The identity with the one of its two tokens that counts; to be renewed soon."""
    assert identity.next_token is not None
    connection = AggregatorClient(url, identity.next_token, patience=patience, verify=verify)
    token = identity.next_token
    try:
        await connection.heartbeat()
    except Refused as refusal:
        # What a proxy refuses says nothing of the token.
        if refusal.reason != "unauthorized":
            raise
        token = identity.token
    finally:
        await connection.close()
    identity = identity.model_copy(update={"token": token, "next_token": None, "renew_at": 0.0})
    _write(path, identity)
    return identity
