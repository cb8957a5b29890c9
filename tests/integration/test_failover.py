"""Redis fails over: Sentinel promotes a replica, and nothing that was acknowledged is lost."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
import redis

from benchmarks.chaos import comparable
from rampart_fl.services.aggregator.state.redis_access import RedisAccess
from rampart_fl.services.aggregator.state.redis_connection import connect
from rampart_fl.services.console.launcher.processes import (
    Processes,
    free_port,
    wait_until_listening,
)
from rampart_fl.services.console.launcher.servers import redis_server
from rampart_fl.services.console.testing import PATIENCE
from rampart_fl.shared.errors import Unavailable
from tests.integration.in_process_federation import FEDCAP, Hold, Hosted, Scripted, experiment
from tests.integration.multi_process_federation import Parted

NAMES = ["ada", "bob", "cleo", "dan"]
PASSWORD = "a password of Redis"
WRITE = "redis.call('SET', KEYS[1], ARGV[1]) return {'done'}"


class Replicated:
    """A primary, its replicas, and a Sentinel that watches them; all of them are processes.

    Args:
        folder: for data and logs.
        replicas: number of replicas.
    """

    def __init__(self, folder: Path, replicas: int) -> None:
        self.folder, self.processes = folder, Processes(folder / "logs")
        self.ports = {f"redis-{n}": free_port() for n in range(replicas + 1)}
        primary = self.ports["redis-0"]
        for name, port in self.ports.items():
            replica = {} if port == primary else {"replicaof": f"127.0.0.1 {primary}"}
            options = {
                "appendonly": "yes",
                "appendfsync": "always",
                "requirepass": f'"{PASSWORD}"',
                "masterauth": f'"{PASSWORD}"',
                "repl-diskless-sync": "yes",
                "repl-diskless-sync-delay": "0",
            }
            self._start(name, port, {**options, **replica})
        self.watcher = free_port()
        watched = {
            "sentinel monitor": f"watched 127.0.0.1 {primary} 1",
            "sentinel auth-pass": f'watched "{PASSWORD}"',
            "sentinel down-after-milliseconds": "watched 1000",
            "sentinel failover-timeout": "watched 5000",
        }
        self._until(lambda: self.info("redis-0")["connected_slaves"] == replicas)
        self._start("sentinel", self.watcher, watched, "--sentinel")
        self.url = f"redis+sentinel://127.0.0.1:{self.watcher}/watched/0"
        with redis.Redis(port=self.watcher, decode_responses=True) as client:
            self._until(lambda: client.sentinel_masters()["watched"]["num-slaves"] == replicas)

    def _start(self, name: str, port: int, options: dict[str, str], *flags: str) -> None:
        folder = self.folder / name
        folder.mkdir(parents=True)
        lines = {"port": str(port), "bind": "127.0.0.1", "dir": str(folder), **options}
        file = folder / "redis.conf"
        file.write_text("".join(f"{key} {value}\n" for key, value in lines.items()))
        self.processes.start(name, [redis_server(), str(file), *flags])
        wait_until_listening(port, self.processes, name, PATIENCE)

    def _until(self, reached: Callable[[], bool]) -> None:
        give_up = time.monotonic() + PATIENCE
        while not reached():
            assert time.monotonic() < give_up
            time.sleep(0.05)

    def info(self, name: str) -> dict[str, object]:
        """The replication status that a server reports."""
        with redis.Redis(port=self.ports[name], password=PASSWORD) as client:
            return dict(client.info("replication"))

    def signal(self, name: str, number: signal.Signals) -> None:
        """Sends a signal to a process."""
        os.kill(self.processes[name].pid, number)

    def cut_off(self, replica: str) -> None:
        """Stops a replica, and ends the connection on which the primary would send it writes."""
        self.signal(replica, signal.SIGSTOP)
        with redis.Redis(port=self.ports["redis-0"], password=PASSWORD) as client:
            client.client_kill_filter(_type="replica")

    def primary(self) -> str:
        """The server that the Sentinel names as the primary."""
        with redis.Redis(port=self.watcher, decode_responses=True) as client:
            _, port = client.sentinel_get_master_addr_by_name("watched")
        return next(name for name, own in self.ports.items() if own == int(port))

    def await_failover(self, former: str) -> None:
        """Waits until the Sentinel names another server as the primary, and that server agrees."""
        self._until(
            lambda: self.primary() != former and self.info(self.primary())["role"] == "master"
        )


@pytest.fixture
def replicated(tmp_path: Path) -> Iterator[Callable[[int], Replicated]]:
    """Starts a primary with a number of replicas; stops all servers after the test."""
    made: list[Replicated] = []

    def make(replicas: int) -> Replicated:
        made.append(Replicated(tmp_path / "servers", replicas))
        return made[-1]

    yield make
    for one in made:
        for name in one.processes.names:
            one.processes.kill(name)


@pytest.mark.timeout(300)
def test_run_reaches_the_same_result_after_redis_and_worker_failover(
    host: Callable[..., Hosted], replicated: Callable[[int], Replicated], tmp_path: Path
) -> None:
    definition = experiment(4, 4, seed=7, server=FEDCAP)
    calm = host(definition)
    calm.scripted(NAMES)
    calm.wait()

    servers = replicated(2)
    settings = {"RAMPART_REDIS_PASSWORD": PASSWORD, "RAMPART_REDIS_REPLICAS": "1"}
    folder = tmp_path / "federation"
    folder.mkdir()
    running, hold = Parted(definition, folder, servers.url, **settings).__enter__(), Hold(2)
    try:
        running.start("api", "api")
        running.start("worker", "one")
        running.hand_over("one")
        running.start("worker", "two")
        running.operator.ready()
        for name in NAMES:
            running.join(name)
        for name in NAMES:
            client = Scripted(name, scale=0.01)
            client.hold = hold
            running.take_part(name, client)
        running.wait("collecting", 2)
        wait_until_listening(running.ports["two"], running.processes, "two", PATIENCE)
        assert running.holder() == "one"
        # A node that fails may take both the primary and the worker that decides with it.
        servers.processes.kill("redis-0")
        running.processes.kill("one")
        servers.await_failover("redis-0")
        running.hand_over("two")
        hold.on = False
        running.wait()
        records = [comparable(record) for record in running.run.rounds()]
        assert records == [comparable(record) for record in calm.run.rounds()]
    finally:
        running.stop()


def test_failover_loses_only_writes_that_no_replica_confirmed(
    replicated: Callable[[int], Replicated],
) -> None:
    servers = replicated(1)

    async def write(replicas: int, key: str) -> None:
        async with aclosing(connect(servers.url, PASSWORD)) as client:
            await RedisAccess(client, replicas).run(WRITE, [key], "value")

    asyncio.run(write(1, "confirmed"))
    servers.cut_off("redis-1")
    asyncio.run(write(0, "acknowledged by the primary alone"))
    with pytest.raises(Unavailable, match="0 of 1 replicas confirmed"):
        asyncio.run(write(1, "refused"))
    servers.processes.kill("redis-0")
    servers.signal("redis-1", signal.SIGCONT)
    servers.await_failover("redis-0")
    port = servers.ports["redis-1"]
    with redis.Redis(port=port, password=PASSWORD, decode_responses=True) as client:
        values = set(client.keys("*"))
    assert "confirmed" in values
    assert "acknowledged by the primary alone" not in values


def test_readiness_requires_the_replicas(replicated: Callable[[int], Replicated]) -> None:
    servers = replicated(1)

    async def ping() -> None:
        async with aclosing(connect(servers.url, PASSWORD)) as client:
            await RedisAccess(client, 1).ping()

    asyncio.run(ping())
    servers.processes.kill("redis-1")
    with pytest.raises(Unavailable, match="replicas"):
        asyncio.run(ping())
