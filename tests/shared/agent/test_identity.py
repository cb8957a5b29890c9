"""Identities: joined once, renewed in time, and never lost in a crash."""

import asyncio
import errno
import fcntl
import json
import os
import stat
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from rampart_fl.shared.agent import identity as identities
from rampart_fl.shared.agent.client import AggregatorClient, RequestRefused
from rampart_fl.shared.agent.identity import Identity, establish, lock_folder, renew, token_renewal
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.runtime.tokens import token_hash

pytestmark = pytest.mark.anyio
URL = "http://test"


def connect(handler: Any, token: str = "t" * 43, **options: Any) -> AggregatorClient:
    connection = AggregatorClient(URL, token, **options)
    connection.http = httpx.AsyncClient(base_url=URL, transport=httpx.MockTransport(handler))
    return connection


def lead_to(handler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connects every client of the identity module to this aggregator."""

    def make(url: str, token: str, **options: Any) -> AggregatorClient:
        return connect(handler, token)

    monkeypatch.setattr(identities, "AggregatorClient", make)


class Registry:
    """An aggregator that registers one client for each token hash."""

    def __init__(self) -> None:
        self.clients: dict[str, str] = {}
        self.requests = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        hash_ = json.loads(request.content)["token_hash"]
        client = self.clients.setdefault(hash_, f"client-{len(self.clients)}")
        return httpx.Response(201, json={"client_id": client, "sample_cap": 9, "expires_at": 1.0})


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    registry = Registry()
    lead_to(registry, monkeypatch)
    return registry


async def test_client_joins_once_and_then_reuses_its_stored_identity(
    registry: Registry, tmp_path: Path
) -> None:
    first = await establish(URL, tmp_path / "state", "j" * 43)
    again = await establish(URL, tmp_path / "state", None)
    assert first == again
    assert (first.client_id, first.sample_cap) == ("client-0", 9)
    assert registry.clients == {token_hash(first.token): "client-0"}
    assert registry.requests == 1
    path = tmp_path / "state" / "identity.json"
    assert path.stat().st_mode & 0o777 == 0o600, "the token is for nobody else's eyes"


async def test_client_that_crashes_before_storing_the_answer_joins_once(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = identities._write

    def die_with_an_answer(path: Path, identity: Identity) -> None:
        if identity.client_id is not None:
            raise KeyboardInterrupt
        write(path, identity)

    monkeypatch.setattr(identities, "_write", die_with_an_answer)
    with pytest.raises(KeyboardInterrupt):
        await establish(URL, tmp_path, "j" * 43)
    monkeypatch.setattr(identities, "_write", write)
    identity = await establish(URL, tmp_path, "j" * 43)
    assert registry.requests == 2
    assert list(registry.clients.values()) == ["client-0"] == [identity.client_id]


async def test_joining_without_identity_and_join_token_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has not joined the federation: give it a join token"):
        await establish(URL, tmp_path, None)


class Office(Registry):
    """An aggregator that knows the current token of one client, and renews it on request.

    Args:
        token: the first valid token.
        lifetime: seconds for which a renewed token is valid.
    """

    def __init__(self, token: str, lifetime: float = 30.0) -> None:
        super().__init__()
        self.known = token_hash(token)
        self.lifetime = lifetime
        self.answers = True
        """If false, the answer to the next renewal is lost."""
        self.renewals = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        token = request.headers["authorization"].removeprefix("Bearer ")
        if token_hash(token) != self.known:
            body = {"type": "urn:rampart:unauthorized", "detail": "", "title": "", "status": 401}
            return httpx.Response(401, json=body)
        if request.method == "PUT":
            assert request.url.path == "/v1/clients/ada/token"
            self.known = json.loads(request.content)["token_hash"]
            self.renewals += 1
            if not self.answers:
                self.answers = True
                raise httpx.ReadError("gone")
            expires = time.time() + self.lifetime
            body = {"client_id": "ada", "sample_cap": 9, "expires_at": expires}
            return httpx.Response(200, json=body)
        return httpx.Response(204)


@pytest.fixture
def office(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Office:
    """The aggregator of a client that has to renew its token."""
    before = Identity(token="b" * 43, client_id="ada", sample_cap=9)
    identities._write(tmp_path / "identity.json", before)
    office = Office(before.token)
    lead_to(office, monkeypatch)
    return office


async def test_token_is_renewed_on_disk_and_in_the_connection(
    office: Office, tmp_path: Path
) -> None:
    connection = connect(office, "b" * 43)
    identity = await renew(connection, tmp_path)
    assert identity.token == connection.token != "b" * 43
    assert token_hash(identity.token) == office.known
    assert identity.renew_at == pytest.approx(time.time() + 20, abs=5)
    assert await establish(URL, tmp_path, None) == identity
    await connection.heartbeat()
    await connection.close()


@pytest.mark.parametrize("renewed", [True, False])
async def test_client_that_crashes_during_renewal_finds_the_valid_token(
    office: Office, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renewed: bool
) -> None:
    async def die(connection: AggregatorClient, client: str, hash_: str) -> None:
        if renewed:
            office.known = hash_
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(AggregatorClient, "rotate", die)
        connection = connect(office, "b" * 43)
        with pytest.raises(KeyboardInterrupt):
            await renew(connection, tmp_path)
        await connection.close()
    identity = await establish(URL, tmp_path, None)
    assert token_hash(identity.token) == office.known
    assert (identity.token == "b" * 43) is not renewed
    assert (identity.next_token, identity.renew_at) == (None, 0.0)


async def test_lost_renewal_answer_does_not_lose_the_identity(
    office: Office, tmp_path: Path
) -> None:
    office.answers = False
    connection = connect(office, "b" * 43)
    identity = await renew(connection, tmp_path)
    assert token_hash(identity.token) == office.known
    assert connection.token == identity.token
    assert await establish(URL, tmp_path, None) == identity
    await connection.close()


async def test_a_revoked_token_is_not_renewed(office: Office, tmp_path: Path) -> None:
    office.known = ""
    connection = connect(office, "b" * 43)
    with pytest.raises(RequestRefused, match="401"):
        await renew(connection, tmp_path)
    assert (await establish(URL, tmp_path, None)).token == "b" * 43
    await connection.close()


class Clock:
    """A clock that advances only when a test says so."""

    def __init__(self) -> None:
        self.now = 1e9

    def time(self) -> float:
        return self.now


async def test_token_is_renewed_in_time_after_the_machine_was_suspended(
    office: Office, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """During a suspension, the clock advances, but `asyncio.sleep` does not."""
    clock = Clock()
    monkeypatch.setattr(identities, "time", clock)
    monkeypatch.setattr(identities, "LONGEST_SLEEP", 0.01)
    monkeypatch.setattr(identities, "RETRY", 0.01)
    identity = Identity(token="b" * 43, client_id="ada", renew_at=clock.now + 20 * 86_400)
    identities._write(tmp_path / "identity.json", identity)
    connection = connect(office, "b" * 43)
    async with asyncio.timeout(5), token_renewal(connection, tmp_path):
        await asyncio.sleep(0.05)
        assert not office.renewals
        clock.now += 21 * 86_400
        while not office.renewals:
            await asyncio.sleep(0.01)
    await connection.close()


async def test_token_is_renewed_only_once_if_this_machines_clock_is_ahead(
    office: Office, tmp_path: Path
) -> None:
    office.lifetime = -86_400.0
    connection = connect(office, "b" * 43)
    async with token_renewal(connection, tmp_path):
        await asyncio.sleep(0.1)
    assert office.renewals == 1
    await connection.close()


@pytest.mark.slow
async def test_requests_succeed_while_the_token_is_renewed(
    office: Office, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identities, "RETRY", 0.01)
    connection, over = connect(office, "b" * 43), time.monotonic() + 0.5
    office.lifetime = 0.0

    async def ask() -> int:
        count = 0
        while time.monotonic() < over:
            await connection.heartbeat()
            count += 1
            await asyncio.sleep(0)
        return count

    async with token_renewal(connection, tmp_path):
        assert sum(await asyncio.gather(ask(), ask(), ask())) > 3
    assert office.renewals > 1
    await connection.close()


def fill(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Simulates a full disk for one write, after a number of writes."""
    written, sync = 0, os.fsync

    def full(descriptor: int) -> None:
        nonlocal written
        written += stat.S_ISREG(os.fstat(descriptor).st_mode)
        if written == after + 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full)


@pytest.mark.parametrize("after", [0, 1])
async def test_renewals_continue_after_the_disk_was_temporarily_full(
    office: Office,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    after: int,
) -> None:
    monkeypatch.setattr(identities, "RETRY", 0.01)
    fill(monkeypatch, after)
    connection = connect(office, "b" * 43)
    async with asyncio.timeout(5), token_renewal(connection, tmp_path):
        while office.renewals < 1 + after:
            await asyncio.sleep(0.01)
            await connection.heartbeat()
    assert "No space left on device: '" in caplog.text
    assert str(tmp_path / "identity.part") in caplog.text
    identity = await establish(URL, tmp_path, None)
    assert token_hash(identity.token) == office.known
    await connection.close()


async def test_refusal_by_a_proxy_does_not_lose_the_identity(
    office: Office, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = Identity(token="a" * 43, client_id="ada", sample_cap=9, next_token="b" * 43)
    identities._write(tmp_path / "identity.json", fresh)
    with monkeypatch.context() as patch:
        lead_to(lambda _: httpx.Response(404, text="404 page not found"), patch)
        with pytest.raises(RequestRefused, match="404"):
            await establish(URL, tmp_path, None)
    lead_to(office, monkeypatch)
    assert (await establish(URL, tmp_path, None)).token == "b" * 43


def test_folder_is_locked_by_one_process_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    refused = pytest.raises(ConfigurationError, match=f"the client in {folder}")
    with lock_folder(folder), refused, lock_folder(folder):
        pass
    with lock_folder(folder):
        pass


def test_missing_support_for_file_locks_is_logged_and_tolerated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def lock(*_: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", lock)
    with lock_folder(tmp_path):
        assert "No locks available" in caplog.text
