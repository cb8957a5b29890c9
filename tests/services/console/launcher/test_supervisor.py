"""A served federation restarts processes that die, and ends if a server fails for a long time."""

import errno
import os
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from rampart_fl.services.console.launcher.federation_folder import ServedFolder
from rampart_fl.services.console.launcher.forked import ForkedProcesses
from rampart_fl.services.console.launcher.processes import ChildFailed, Processes
from rampart_fl.services.console.launcher.servers import LocalServers
from rampart_fl.services.console.launcher.supervisor import (
    GIVE_UP,
    LONGEST,
    POLL,
    SHORTEST,
    STEADY,
    SupervisedFederation,
    require_free,
)
from rampart_fl.shared.errors import ConfigurationError
from tests.integration.in_process_federation import Disk, until

pytestmark = pytest.mark.processes


class Stopped(Exception):
    """The test has seen enough, and stops the supervision."""


class Scripted(LocalServers):
    """Redis waits, and the aggregator runs a shell command; a test controls the time."""

    command = "echo no disk; exit 3"
    now = 0.0

    def start_servers(self) -> None:
        """Starts both."""
        self.starts = list[float]()
        self.launch_redis()
        self.launch_aggregator()

    def launch_redis(self) -> None:
        """Starts a process that waits."""
        self.processes.start("redis", ["sleep", "600"])

    def launch_aggregator(self) -> None:
        """Starts the command."""
        self.starts.append(self.now)
        self.processes.start("aggregator", ["sh", "-c", self.command])

    def pause(self, seconds: float) -> None:
        """Waits until the command has ended; then the given time has passed."""
        self.processes["aggregator"].wait()
        self.now += seconds

    def gaps(self) -> list[float]:
        """The times between two starts of the aggregator."""
        return [later - before for before, later in pairwise(self.starts)]

    def supervised(self, folder: ServedFolder) -> SupervisedFederation:
        """The supervisor of these servers."""
        return SupervisedFederation(self, folder, lambda: self.now, self.pause)


def test_process_that_dies_is_restarted_after_growing_pauses(tmp_path: Path) -> None:
    folder = ServedFolder(tmp_path)
    with folder.lock(), Scripted(tmp_path) as servers:
        redis = servers.processes["redis"].pid
        expected = "aggregator exited with code 3; .* in the last 60 minutes failed; .*no disk"
        with pytest.raises(ChildFailed, match=expected):
            servers.supervised(folder).watch()
        assert servers.processes["redis"].pid == redis, "it was left alone"
        recorded = {path.name: int(path.read_text()) for path in (tmp_path / "pids").iterdir()}
        assert recorded == {"redis": redis}, "ids of dead processes are forgotten"
    gaps, wait = servers.gaps(), SHORTEST
    for gap in gaps:
        assert wait <= gap + 1e-6 < wait + 3 * POLL
        wait = min(2 * wait, LONGEST)
    assert sum(gaps) > GIVE_UP - LONGEST
    assert (tmp_path / "logs/aggregator.log").read_text() == "no disk\n" * len(servers.starts)


class Mortal(Scripted):
    """The aggregator runs for `STEADY` seconds, and then dies."""

    command = "exec sleep 600"

    def pause(self, seconds: float) -> None:
        """Kills the aggregator in time."""
        if len(self.starts) > GIVE_UP / STEADY + 2:
            raise Stopped
        if self.now - self.starts[-1] >= STEADY:
            self.processes.kill("aggregator")
        self.now += seconds


def test_processes_that_run_for_a_while_are_restarted_forever(tmp_path: Path) -> None:
    folder = ServedFolder(tmp_path)
    with folder.lock(), Mortal(tmp_path) as servers:
        with pytest.raises(Stopped):
            servers.supervised(folder).watch()
        assert servers.now > GIVE_UP
        assert max(servers.gaps()) < STEADY + SHORTEST + 4 * POLL


class FullDisk(Mortal):
    """At first, the disk has no room for configuration files and process ids."""

    def launch_aggregator(self) -> None:
        """Fails while the disk is full."""
        full = len(self.starts) in {1, 2, 3}
        self.starts.append(self.now)
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.processes.start("aggregator", ["sleep", "600"])

    def pause(self, seconds: float) -> None:
        """Ends the test when both ids are recorded."""
        pids = self.folder / "pids"
        if len(self.starts) == 5:
            if pids.is_dir():
                raise Stopped
            pids.unlink()
        self.now += seconds


def test_full_disk_does_not_end_the_federation(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk()
    disk.free = 2**19
    monkeypatch.setattr(shutil, "disk_usage", disk.usage)
    folder = ServedFolder(tmp_path)
    (tmp_path / "pids").touch()
    with FullDisk(tmp_path) as servers:
        served = servers.supervised(folder)
        servers.processes.kill("aggregator")
        with pytest.raises(Stopped):
            served.watch()
        for name in ("redis", "aggregator"):
            recorded = int((tmp_path / "pids" / name).read_text())
            assert recorded == servers.processes[name].pid
    assert "aggregator exited with code -9; waiting 0.2 s before" in caplog.messages[0]
    assert "aggregator cannot be started ([Errno 28] No space left on" in caplog.messages[3]
    waits = "waiting 1.6 s before the next start; the disk has only 0.5 MiB free; see "
    assert waits in caplog.messages[3]


class Failing(Processes):
    """Each process of clients prints one of its variables, and fails."""

    def python(self, name: str, module: str, *arguments: str, **environment: str) -> None:
        """Starts the process."""
        del module, arguments
        self.start(name, ["sh", "-c", "echo $RAMPART_STAY_WHEN_BARRED; exit 1"], environment)


class Agents(Mortal):
    """Servers that run, beside clients that fail."""

    end = GIVE_UP + 2 * LONGEST

    def launch_aggregator(self) -> None:
        """Starts a process that waits."""
        self.processes.start("aggregator", ["sleep", "600"])

    def pause(self, seconds: float) -> None:
        """Waits until the clients have failed."""
        if self.now > self.end:
            raise Stopped
        self.processes["agents-0"].wait()
        self.now += seconds


def test_failing_clients_do_not_end_the_federation(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, state = ServedFolder(tmp_path), tmp_path / "clients/agents-0"
    state.mkdir(parents=True)
    (state / "join-tokens").write_text("first\nsecond")
    with folder.lock(), Agents(tmp_path, processes=Failing) as servers:
        served = servers.supervised(folder)
        served.start_agents(2)
        with pytest.raises(Stopped):
            served.watch()
        assert servers.processes["redis"].poll() is servers.processes["aggregator"].poll() is None
        recorded = sorted(path.name for path in (tmp_path / "pids").iterdir())
        assert recorded == ["aggregator", "redis"]
    starts = GIVE_UP / LONGEST
    assert starts <= len(caplog.messages) < starts + 10, "the pauses grow"
    given_up = (
        "in the last 60 minutes failed; its clients stay offline until the next `rampart serve`"
    )
    assert given_up in caplog.messages[-1]
    assert set((tmp_path / "logs/agents-0.log").read_text().split()) == {"true"}


def test_further_clients_of_a_served_folder_join_beside_the_earlier_ones(tmp_path: Path) -> None:
    folder, tokens = ServedFolder(tmp_path), tmp_path / "clients/agents-0/join-tokens"
    with folder.lock(), LocalServers(tmp_path, processes=ForkedProcesses) as servers:
        served = SupervisedFederation(servers, folder)

        def joined() -> list[str]:
            return [client.client_id for client in servers.operator.clients()]

        tokens.parent.mkdir(parents=True)
        tokens.write_text("expired")
        os.utime(tokens, (0, 0))
        served.start_agents(1)
        until(lambda: len(joined()) == 1)
        (first,), (earlier,) = tokens.read_text().splitlines(), joined()
        servers.processes.stop("agents-0")
        served.start_agents(3)
        until(lambda: len(joined()) == 3)
        assert earlier in joined(), "it keeps its identity"
        lines = tokens.read_text().splitlines()
        assert (lines[0], len(set(lines))) == (first, 3)
        assert tokens.stat().st_mode & 0o777 == 0o600
        servers.processes.stop("agents-0")
        served.start_agents(2)
        assert tokens.read_text().splitlines() == lines


def test_ids_of_restarted_processes_are_recorded_even_if_several_died(tmp_path: Path) -> None:
    folder = ServedFolder(tmp_path)
    with folder.lock(), LocalServers(tmp_path, processes=ForkedProcesses) as servers:
        killed = {name: servers.processes[name].pid for name in ("redis", "aggregator")}

        def stop_after_both_restarts(seconds: float) -> None:
            if all(servers.processes[name].pid != pid for name, pid in killed.items()):
                raise Stopped

        served = SupervisedFederation(servers, folder, pause=stop_after_both_restarts)
        for name in killed:
            servers.processes.kill(name)
        with pytest.raises(Stopped):
            served.watch()
        for name in killed:
            recorded = int((tmp_path / "pids" / name).read_text())
            assert recorded == servers.processes[name].pid
        servers.operator.ready()


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    servers = LocalServers(tmp_path)
    servers.start_redis()
    try:
        with pytest.raises(ConfigurationError, match=f"port {servers.redis_port} cannot be used"):
            require_free(servers.redis_port)
    finally:
        servers.stop()
    require_free(servers.redis_port)
    require_free(0)
