"""For tests of upgrades: a next release, a balancer for the apis, and a prober that queries it."""

import asyncio
import http.client
import json
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import rampart_fl
from tests.integration.in_process_federation import until
from tests.schemas import next_schema

STATE = "services/aggregator/state"
MODULE = "rampart_fl.services.aggregator.state"
ROUTES = "services/aggregator/api/routes"
CHANGED = {
    f"{ROUTES}/operations.py": [('{"status": "alive"}', '{"status": "alive", "release": "next"}')]
}
CONVERTED = {
    f"{STATE}/keys.py": [
        ('SCHEMA = "3"', 'SCHEMA = "4"'),
        ('MIGRATED = ("1", "2")', 'MIGRATED = ("1", "2", "3")'),
        ('self.members = f"{prefix}members"', 'self.members = f"{prefix}seats"'),
    ],
    f"{STATE}/schema_migration.py": [
        (
            'STEPS: dict[str, Conversion] = {"1"',
            'STEPS: dict[str, Conversion] = {"3": to_seats, "1"',
        ),
        ("import asyncio\n", f"import asyncio\nfrom {MODULE}.next_schema import to_seats\n"),
    ],
}


def next_release(folder: Path, new_schema: bool) -> str:
    """Writes the code of a next release to a folder; returns the PYTHONPATH of its processes.

    The release is this one with small changes: `/healthz` says which release answers, and with
    `new_schema`, the stored state has schema 4.
    """
    package, this = folder / "rampart_fl", Path(rampart_fl.__file__).parent
    shutil.copytree(this, package, ignore=shutil.ignore_patterns("__pycache__"))
    if new_schema:
        shutil.copy(next_schema.__file__, package / STATE)
    for name, replaced in {**CHANGED, **(CONVERTED if new_schema else {})}.items():
        text = (package / name).read_text()
        for old, new in replaced:
            assert text.count(old) == 1, f"{name}: {old}"
            text = text.replace(old, new)
        (package / name).write_text(text)
    return str(folder)


class Balancer(threading.Thread):
    """Forwards each connection to one of the apis in turn.

    Args:
        port: where it listens.
        backends: ports of the apis; may change at any time.
    """

    def __init__(self, port: int, backends: Sequence[int]) -> None:
        super().__init__(name="balancer")
        self.backends = list(backends)
        self._port, self._turn = port, 0
        self._loop, self._over = asyncio.new_event_loop(), asyncio.Event()
        self._listening = threading.Event()

    def __enter__(self) -> "Balancer":
        self.start()
        assert self._listening.wait(60)
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self.join()

    def run(self) -> None:
        """Forwards bytes until the context ends."""
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connect, "127.0.0.1", self._port)
        self._listening.set()
        await self._over.wait()
        server.close()
        own = asyncio.current_task()
        open_ = [task for task in asyncio.all_tasks() if task is not own]
        for task in open_:
            task.cancel()
        await asyncio.gather(*open_, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._turn += 1
        port = self.backends[self._turn % len(self.backends)]
        try:
            other, there = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_pass(reader, there), _pass(other, writer))


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copies one direction of a connection until it ends."""
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


class Prober(threading.Thread):
    """Sends GET requests continuously, each on a new connection, and records all but status 200.

    Args:
        port: where the federation listens.
        token: of an operator.
        paths: the paths that it requests in turn.
    """

    def __init__(self, port: int, token: str, paths: Sequence[str]) -> None:
        super().__init__(name="prober")
        self._port, self._paths = port, paths
        self._headers = {"Authorization": f"Bearer {token}", "Connection": "close"}
        self._over = threading.Event()
        self._pending: Callable[[], None] | None = None
        self.failed: list[str] = []
        self.releases: set[str] = set()
        """The releases that have answered."""

    def __enter__(self) -> "Prober":
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        """Sends requests until the context ends."""
        while not self._over.is_set():
            for path in (*self._paths, "/healthz"):
                if self._pending is not None:
                    self._pending()
                    self._pending = None
                self._ask(path)

    def between_requests(self, change: Callable[[], None]) -> None:
        """Calls a function between two requests, in the prober's thread; returns afterwards."""
        self._pending = change
        until(lambda: self._pending is None)

    def _ask(self, path: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            connection.request("GET", path, headers=self._headers)
            answer = connection.getresponse()
            body = answer.read()
            if answer.status != 200:
                self.failed.append(f"{path}: {answer.status} {body!r}")
            elif path == "/healthz":
                self.releases.add(json.loads(body).get("release", "this"))
        except (OSError, http.client.HTTPException) as error:
            self.failed.append(f"{path}: {error!r}")
        finally:
            connection.close()
