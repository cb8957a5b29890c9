"""A served federation ends if one of its processes dies repeatedly."""

from pathlib import Path

import pytest

from rampart_fl.services.console.launcher.federation_folder import ServedFolder
from rampart_fl.services.console.launcher.forked import ForkedProcesses
from rampart_fl.services.console.launcher.processes import ChildFailed
from rampart_fl.services.console.launcher.servers import LocalServers
from rampart_fl.services.console.launcher.supervisor import MOST, SupervisedFederation, require_free
from rampart_fl.shared.errors import ConfigurationError

pytestmark = pytest.mark.processes


class Failing(LocalServers):
    """Two servers: one waits, and the other one fails immediately."""

    def start_servers(self) -> None:
        """Starts both."""
        self.launch_redis()
        self.launch_aggregator()

    def launch_redis(self) -> None:
        """Starts a process that waits."""
        self.processes.start("redis", ["sleep", "600"])

    def launch_aggregator(self) -> None:
        """Starts a process that fails."""
        self.processes.start("aggregator", ["sh", "-c", "echo no disk; exit 3"])


def test_process_that_dies_repeatedly_ends_the_federation(tmp_path: Path) -> None:
    folder = ServedFolder(tmp_path)
    with folder.lock(), Failing(tmp_path) as servers:
        redis = servers.processes["redis"].pid
        expected = f"aggregator died {MOST} times, the last time with code 3; .*no disk"
        with pytest.raises(ChildFailed, match=expected):
            SupervisedFederation(servers, folder).watch()
        assert servers.processes["redis"].pid == redis, "it was left alone"
    assert (tmp_path / "logs/aggregator.log").read_text() == "no disk\n" * MOST


def test_processes_that_die_rarely_are_restarted(tmp_path: Path) -> None:
    """The federation ends only after the clock has stopped, so that deaths are no longer rare."""
    times = iter([*range(0, 1000 * 2 * MOST, 1000), *[10**6] * MOST])
    folder = ServedFolder(tmp_path)
    with folder.lock(), Failing(tmp_path) as servers, pytest.raises(ChildFailed):
        SupervisedFederation(servers, folder, clock=lambda: next(times)).watch()
    assert list(times) == []


class Stopped(Exception):
    """The test has seen enough, and stops the supervision."""


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
