"""A real aggregator over real Redis, with clients that are only tokens and bytes."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest
import zstandard

from benchmarks import chaos
from rampart_fl.services.aggregator.state.stores import RunStores, Stores
from rampart_fl.services.console.launcher.forked import ForkedProcesses
from rampart_fl.services.console.launcher.local_federation import LocalFederation
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.runtime.tokens import mint, token_hash
from tests.integration import in_process_federation
from tests.integration.multi_process_federation import Parted

SMALL = """
name = "small"
rounds = 2
[data]
dataset = "digits"
clients = 10
[model]
name = "cnn"
hidden = {hidden}
[server]
sample_cap = 1000
[phases.joining]
clients = 5
[phases.collecting]
count = {{ min = 3, max = 3 }}
"""
"""Rounds of this federation close with the third update; no client trains."""
RUN = "/v1/runs/small-1"
"""The path of the run in an arena."""
PROBLEM = "application/problem+json"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Marks the tests of this folder."""
    item.add_marker(pytest.mark.processes)


@dataclass(frozen=True)
class Reply:
    """A response: its status, headers and body."""

    status: int
    headers: httpx.Headers
    body: bytes

    @property
    def slug(self) -> str:
        """The last part of the problem's type; checks all fields of the problem first."""
        assert self.headers["content-type"] == PROBLEM, self.body[:300]
        problem = json.loads(self.body)
        assert set(problem) == {"type", "title", "status", "detail", "instance"}
        assert problem["status"] == self.status
        assert problem["title"]
        prefix, _, slug = problem["type"].rpartition(":")
        assert prefix == "urn:rampart"
        return str(slug)


class Arena:
    """A running federation, and the requests that honest and hostile clients send to it.

    Args:
        local: Redis and the aggregator, started.
        names: names of the clients, which join immediately.
    """

    def __init__(self, local: LocalFederation, names: Sequence[str]) -> None:
        self.local = local
        self.url = local.url
        self.http = httpx.Client(base_url=local.url, timeout=30)
        self.operator = local.token
        self.tokens: dict[str, str] = {}
        for name in names:
            self.join(name)
        data = self.call("GET", f"{RUN}/models/global", self.operator).body
        entries = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        self.spec = ModelSpec.of([(name, e["shape"]) for name, e in entries.items()])
        self.zeros_D = np.zeros(self.spec.dim, dtype=np.float32)

    def join(self, name: str) -> None:
        """Adds a client of this name, which accepts the run."""
        (join_token,) = self.local.operator.mint([name]).tokens
        self.tokens[name] = mint()
        body = {"token_hash": token_hash(self.tokens[name])}
        assert self.call("POST", "/v1/clients", join_token, json=body).status == 201
        accepted = self.call("PUT", f"{RUN}/acceptance", self.tokens[name], json={"accept": True})
        assert accepted.status == 200, accepted.body

    def call(
        self, method: str, path: str, token: str | None, headers: Any = None, **options: Any
    ) -> Reply:
        """Sends a request through an ordinary HTTP client."""
        bearer = {} if token is None else {"Authorization": f"Bearer {token}"}
        answer = self.http.request(method, path, headers={**bearer, **(headers or {})}, **options)
        return Reply(answer.status_code, answer.headers, answer.content)

    def update(self, value: float = 0.0, dtype: str = "F32", **claims: Any) -> bytes:
        """An update whose numbers are all `value`; it is valid if the claims are."""
        report = json.dumps({"samples": 3, "metrics": {}, **claims})
        return wire.encode(self.spec, self.zeros_D + np.float32(value), {"report": report}, dtype)

    def put(
        self,
        client: str,
        data: bytes,
        path: str = f"{RUN}/rounds/1/update",
        **headers: str,
    ) -> Reply:
        """Uploads an update."""
        all_headers = {"Content-Type": wire.MEDIA_TYPE}
        all_headers |= {name.replace("_", "-"): value for name, value in headers.items()}
        return self.call("PUT", path, self.tokens[client], all_headers, content=data)

    def customize(self, client: str) -> Reply:
        """Requests a customized model out of turn."""
        headers = {"Content-Type": wire.MEDIA_TYPE}
        return self.call(
            "POST", f"{RUN}/customize", self.tokens[client], headers, content=self.update()
        )

    @contextmanager
    def connect(self) -> Iterator[socket.socket]:
        """A bare connection."""
        address = ("127.0.0.1", self.local.port)
        with socket.create_connection(address, timeout=20) as connection:
            yield connection

    def raw(self, *pieces: bytes, pause: Callable[[], None] | None = None) -> Reply:
        """Sends bytes on a bare connection; returns the reply."""
        with self.connect() as connection:
            for piece in pieces:
                try:
                    connection.sendall(piece)
                except (BrokenPipeError, ConnectionResetError):
                    break  # The server has replied already.
                if pause is not None:
                    pause()
            return self.read(connection)

    def read(self, connection: socket.socket) -> Reply:
        """The reply on a bare connection."""
        return read_reply(connection)

    def head(self, line: str, client: str | None, *headers: str) -> bytes:
        """A request's line and headers as bytes."""
        lines = [f"{line} HTTP/1.1", "Host: test", *headers]
        if client is not None:
            lines.append(f"Authorization: Bearer {self.tokens[client]}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    def of_run(self, action: Callable[[RunStores], Any]) -> Any:
        """The result of an action on the state of the run."""
        return self.stores(lambda stores: action(stores.of_run(self.local.run.id)))

    def stores(self, action: Callable[[Stores], Any]) -> Any:
        """The result of an action on the federation's state."""

        async def act() -> Any:
            url = f"redis://127.0.0.1:{self.local.redis_port}/0"
            async with aclosing(
                Stores.connect(url, self.local.redis_password, "rampart")
            ) as stores:
                return await action(stores)

        return asyncio.run(act())

    def wait_for(self, round_: int, phase: str = "collecting") -> None:
        """Waits until the federation is in this round and phase."""
        for _ in self.local.run.events("0-0", ticks=True):
            status = self.local.run.status()
            if (status.round, status.phase) == (round_, phase):
                return
        raise AssertionError(f"the stream of events ended before round {round_} was {phase}")


def read_reply(connection: socket.socket) -> Reply:
    """Reads one response with a Content-Length from a bare connection."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65_536)
        assert more, f"the connection ended after {data!r}"
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = httpx.Headers([tuple(line.split(": ", 1)) for line in lines[1:]])
    while len(body) < int(headers["content-length"]):
        more = connection.recv(65_536)
        assert more, f"the connection ended after {data!r}"
        body += more
    return Reply(int(lines[0].split()[1]), headers, body[: int(headers["content-length"])])


@pytest.fixture(scope="session")
def start_arena() -> Callable[..., Any]:
    """Starts a federation: a context manager that gives its `Arena`."""

    @contextmanager
    def start(
        folder: Path, names: Sequence[str] = (), hidden: int = 16, **settings: str
    ) -> Iterator[Arena]:
        experiment = Experiment.parse(SMALL.format(hidden=hidden))
        variables = {f"RAMPART_{name.upper()}": value for name, value in settings.items()}
        variables = {"RAMPART_THREADS": "1", "OMP_NUM_THREADS": "1", **variables}
        with LocalFederation(
            experiment, folder, settings=variables, processes=ForkedProcesses
        ) as local:
            arena = Arena(local, names)
            try:
                yield arena
            finally:
                arena.http.close()

    return start


class Watch(threading.Thread):
    """Samples the resident size of a process, and keeps the largest value in bytes."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._process = psutil.Process(pid)
        self._over = threading.Event()
        self.first = self.largest = self._process.memory_info().rss

    def run(self) -> None:
        """Samples until it is stopped."""
        while not self._over.wait(0.01):
            self.largest = max(self.largest, self._process.memory_info().rss)

    def stop(self) -> int:
        """Stops sampling; returns by how much the process grew."""
        self._over.set()
        self.join()
        return self.largest - self.first


@pytest.fixture(scope="session")
def besiege(start_arena: Any) -> Callable[[Path], Any]:
    """Starts a federation for hostile requests: a context manager that gives its `Arena`.

    The federation is in round 1, and only Ada has uploaded an update. An update has 4.5 MB, so that
    one more update in memory is noticeable.
    """

    @contextmanager
    def start(folder: Path) -> Iterator[Any]:
        honest, others = ("ada", "bob", "cleo"), ("mallory", "eve", "oldie", "gone")
        settings = {"body_idle": "1.5", "customizations_per_minute": "2"}
        with start_arena(folder, honest + others, hidden=8192, **settings) as arena:
            arena.wait_for(0)
            for name in honest:
                assert arena.put(name, arena.update(), f"{RUN}/rounds/0/update").status == 200
            arena.wait_for(1)
            expired = token_hash(arena.tokens["oldie"])
            arena.stores(lambda stores: stores.clients.change_token("oldie", expired, 1.0, expired))
            assert arena.call("DELETE", "/v1/clients/gone/token", arena.operator).status == 204
            arena.local.run.decide("eve", "evict", "a test")
            arena.receipt = json.loads(arena.put("ada", arena.update(1)).body)
            # After this request, the server has loaded all that it loads only once.
            packed = zstandard.compress(arena.update(float("nan")))
            assert arena.put("mallory", packed, Content_Encoding="zstd").status == 422
            arena.watch = Watch(arena.local.processes["aggregator"].pid)
            arena.watch.start()
            try:
                yield arena
            finally:
                arena.watch.stop()

    return start


@pytest.fixture(scope="session")
def siege(besiege: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The federation that all hostile requests share; no test may end its round."""
    with besiege(tmp_path_factory.mktemp("siege")) as arena:
        yield arena


@pytest.fixture(scope="module")
def calm(experiment: Experiment, tmp_path_factory: pytest.TempPathFactory) -> chaos.Run:
    """The undisturbed result of the module's experiment."""
    return chaos.run(experiment, tmp_path_factory.mktemp("calm"))


@pytest.fixture
def host(tmp_path: Path, redis_url: str) -> Iterator[Callable[..., in_process_federation.Hosted]]:
    """Serves federations in this process, `host(experiment, **settings)`, until the test ends."""
    with ExitStack() as started:

        def start(experiment: Experiment, **settings: Any) -> in_process_federation.Hosted:
            serving = in_process_federation.host(experiment, tmp_path, redis_url, **settings)
            return started.enter_context(serving)

        yield start


@pytest.fixture
def parted(tmp_path: Path, redis_url: str) -> Iterator[Callable[[Experiment], Parted]]:
    """Creates federations of several processes, and stops the processes after the test."""
    made: list[Parted] = []

    def make(experiment: Experiment) -> Parted:
        folder = tmp_path / "parted"
        folder.mkdir()
        made.append(Parted(experiment, folder, redis_url))
        return made[-1].__enter__()

    yield make
    for one in made:
        one.stop()
