"""A client's identity: a token that the client generates, stores on its disk, and renews."""

import asyncio
import fcntl
import json
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from rampart_fl.shared.agent.client import AggregatorClient, RequestRefused
from rampart_fl.shared.errors import ConfigurationError, RampartError
from rampart_fl.shared.protocol.messages import Joined
from rampart_fl.shared.runtime import durable
from rampart_fl.shared.runtime.tokens import mint, token_hash

log = logging.getLogger(__name__)
RENEW_AFTER = 2 / 3
"""Fraction of a token's lifetime after which the token is renewed."""
RETRY = 60.0
"""Seconds after a renewal, successful or not, before the next one."""
LONGEST_SLEEP = 600.0
"""Seconds after which the agent looks at the clock again while it waits for a renewal."""


class Identity(BaseModel):
    """A client's tokens, and the id and sample limit that the aggregator assigned to the client."""

    model_config = ConfigDict(frozen=True)
    token: str
    client_id: str | None = None
    sample_cap: int | None = None
    """The largest number of samples that this client may claim; None if each run sets the limit."""
    renew_at: float = 0.0
    """Unix time at which the token is to be renewed."""
    next_token: str | None = None
    """The new token while a renewal is in progress; None once the aggregator has confirmed it."""

    def with_token(self, token: str, joined: Joined) -> "Identity":
        """This identity with a new token, which the aggregator has confirmed."""
        now = time.time()
        return Identity(
            token=token,
            client_id=joined.client_id,
            sample_cap=joined.sample_cap,
            renew_at=now + RENEW_AFTER * (joined.expires_at - now),
        )


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Locks a client's folder, so that two processes cannot undo each other's token renewals.

    The lock is released when the process exits, even if it is killed.

    Raises:
        ConfigurationError: another process has locked the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigurationError(
                f"another process runs the client in {folder}: stop that process, or choose "
                "another folder"
            ) from None
        except OSError as error:
            # Some network disks do not support locks, so only warn.
            log.warning("cannot lock %s, so another process could use it: %s", folder, error)
        yield


def has_joined(folder: Path) -> bool:
    """Whether the client with this folder has joined a federation."""
    path = folder / "identity.json"
    return path.exists() and _load(path).client_id is not None


def _load(path: Path) -> Identity:
    return Identity(**json.loads(path.read_text(encoding="utf-8")))


def _load_or_create(path: Path) -> Identity:
    """Reads the identity in a file; if there is no file, creates and stores a new identity."""
    if path.exists():
        return _load(path)
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
    """Reads a client's identity from a folder; without an identity, joins with a join token.

    The function writes the client's own token to disk before it sends the request to join. If the
    client crashes before it gets the answer, it repeats the request after its restart. The repeated
    request contains the same token, so the client does not join twice.

    Raises:
        ValueError: the folder has no identity, and no join token is given.
        RequestRefused: the join token is unknown, expired or used by another client.
    """
    path = folder / "identity.json"
    identity = _load_or_create(path)
    if identity.next_token is not None:
        return await _settle(path, identity, url, verify, patience)
    if identity.client_id is not None:
        return identity
    if join_token is None:
        raise ValueError(
            f"the client in {folder} has not joined the federation: give it a join token"
        )
    connection = AggregatorClient(url, join_token, patience=patience, verify=verify)
    try:
        joined = await connection.join(token_hash(identity.token), client_id)
    finally:
        await connection.close()
    identity = identity.with_token(identity.token, joined)
    _write(path, identity)
    return identity


@asynccontextmanager
async def token_renewal(connection: AggregatorClient, folder: Path) -> AsyncIterator[None]:
    """Context manager that renews a client's token after two thirds of the token's lifetime."""
    renewing = asyncio.create_task(_renew_in_time(connection, folder))
    try:
        yield
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)


async def _renew_in_time(connection: AggregatorClient, folder: Path) -> None:
    while True:
        left = _load_or_create(folder / "identity.json").renew_at - time.time()
        if left > 0:
            # A sleep does not end sooner if the machine is suspended or its clock is set meanwhile.
            await asyncio.sleep(min(left, LONGEST_SLEEP))
            continue
        try:
            await renew(connection, folder)
            log.info("token renewed")
        except (RampartError, OSError, ValueError) as error:
            # Any failure, even a full disk, may be temporary, so retry after every failure.
            log.warning("token not renewed: %s", error)
        # If this machine's clock is ahead, even a new token seems to be due.
        await asyncio.sleep(RETRY)


async def renew(connection: AggregatorClient, folder: Path) -> Identity:
    """Replaces a client's token at the aggregator, on the client's disk and in its connection.

    The function writes the new token to disk before it sends the token's hash to the aggregator. If
    the client crashes before it gets the answer, it can still determine whether the old or the new
    token is valid.

    Raises:
        RequestRefused: the current token is no longer valid.
    """
    path = folder / "identity.json"
    identity = _load_or_create(path)
    if identity.next_token is not None:
        # An earlier renewal is unfinished: its answer was lost, or writing to disk failed.
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
    except RequestRefused:
        # The aggregator may have replaced the token at an earlier attempt whose answer was lost.
        identity = await _settle(
            path, _load_or_create(path), connection.url, connection.verify, connection.patience
        )
        if identity.token != fresh:
            raise
    else:
        # The old token is invalid from now on, even if writing the new token to disk fails.
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
    """Determines which of an identity's two tokens is valid, and keeps only the valid token.

    The returned identity's `renew_at` is 0, so its token is due for renewal at once.
    """
    assert identity.next_token is not None
    connection = AggregatorClient(url, identity.next_token, patience=patience, verify=verify)
    token = identity.next_token
    try:
        await connection.heartbeat()
    except RequestRefused as refusal:
        # Only the refusal "unauthorized" shows that the new token is not valid. A different refusal
        # may come from a proxy, for example.
        if refusal.reason != "unauthorized":
            raise
        token = identity.token
    finally:
        await connection.close()
    identity = identity.model_copy(update={"token": token, "next_token": None, "renew_at": 0.0})
    _write(path, identity)
    return identity
