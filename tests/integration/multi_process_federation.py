"""A federation over several processes, one for each role."""

import asyncio
import secrets
import sys
import time
from contextlib import aclosing
from pathlib import Path

import psutil

from benchmarks.chaos import comparable
from rampart_fl.services.aggregator.state.redis_connection import connect
from rampart_fl.services.console.connection.operator import Operator
from rampart_fl.services.console.launcher.forked import ForkedProcesses
from rampart_fl.services.console.launcher.processes import Processes, free_port
from rampart_fl.services.console.testing import PATIENCE, TestClients
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.toml import to_toml
from rampart_fl.shared.protocol.messages import RoundRecord


class Parted(TestClients):
    """A federation in which each role is a separate process.

    Args:
        given: the experiment.
        folder: for blobs, logs and identities.
        redis_url: URL of the Redis that all processes share.
        settings: more settings for every process.
    """

    def __init__(
        self, experiment: Experiment, folder: Path, redis_url: str, **settings: str
    ) -> None:
        (folder / "experiment.toml").write_text(to_toml(experiment.tables()))
        token, self.ports = secrets.token_hex(16), {"api": free_port()}
        super().__init__(
            Operator(f"http://127.0.0.1:{self.ports['api']}", token, patience=60),
            folder / "test-clients",
        )
        self.processes = ForkedProcesses(folder / "logs")
        self.namespace = f"parted-{secrets.token_hex(6)}"
        self.redis_url = redis_url
        self.settings = {
            "RAMPART_REDIS_URL": redis_url,
            "RAMPART_NAMESPACE": self.namespace,
            "RAMPART_BLOBS": str(folder / "blobs"),
            "RAMPART_OPERATOR_TOKEN": token,
            "RAMPART_EXPERIMENT": str(folder / "experiment.toml"),
            "RAMPART_THREADS": "1",
            "RAMPART_LEASE": "2",
            **settings,
        }

    def start(self, role: str, name: str, release: str | None = None) -> None:
        """Starts a process; of another release if its PYTHONPATH is given."""
        port = self.ports.setdefault(name, free_port())
        own = {"RAMPART_ROLE": role, "RAMPART_PORT": str(port), "RAMPART_WORKER_ID": name}
        settings, module = {**self.settings, **own}, "rampart_fl.services.aggregator"
        if release is None:
            self.processes.python(name, module, **settings)
        else:  # A forked process would have imported this release.
            Processes.python(self.processes, name, module, **settings, PYTHONPATH=release)

    def start_ranks(self, name: str, size: int) -> None:
        """Starts a worker as several processes, which divide the coordinates."""
        port = self.ports.setdefault(name, free_port())
        settings = {**self.settings, "RAMPART_PORT": str(port), "RAMPART_WORKER_ID": name}
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += ["--local-addr", "127.0.0.1"]
        command += ["--nproc-per-node", str(size), "-m", "rampart_fl.services.aggregator"]
        self.processes.start(name, [*command, "--role", "worker"], settings)

    def ranks(self, name: str) -> list[psutil.Process]:
        """The processes of a worker, in the order of their ranks."""
        children = psutil.Process(self.processes[name].pid).children()
        return sorted(children, key=lambda child: int(child.environ()["RANK"]))

    def holder(self) -> str | None:
        """The worker that holds the lease, if any."""
        password = self.settings.get("RAMPART_REDIS_PASSWORD")

        async def ask() -> str | None:
            async with aclosing(connect(self.redis_url, password)) as client:
                worker: str | None = await client.get(f"{{{self.namespace}}}:lease")
            return worker

        return asyncio.run(ask())

    def hand_over(self, until: str) -> None:
        """Waits until this worker holds the lease."""
        give_up = time.monotonic() + PATIENCE
        while self.holder() != until:
            assert time.monotonic() < give_up, self.processes.tail(until)
            time.sleep(0.05)

    def stop(self) -> None:
        """Stops the clients, then the processes."""
        self.__exit__(None, None, None)
        self.operator.close()
        self.processes.stop_all()


def outcome(records: list[RoundRecord]) -> list[dict[str, object]]:
    """The records without what depends on the clock."""
    return [comparable(record) for record in records]
