"""`rampart serve`: a long-lived federation on this machine, with optional agents."""

import logging
import shutil
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from rampart_fl.services.console.launcher.agent_tokens import LIFETIME, provide_tokens
from rampart_fl.services.console.launcher.federation_folder import ServedFolder
from rampart_fl.services.console.launcher.processes import ChildFailed
from rampart_fl.services.console.launcher.servers import LocalServers
from rampart_fl.shared.errors import ConfigurationError, RampartError

log = logging.getLogger(__name__)
POLL = 0.2
"""Seconds between checks of the processes."""
SHORTEST, LONGEST = 0.2, 30.0
"""Shortest and longest delay in seconds between the death of a process and its next start. Each
further death doubles the delay."""
STEADY = 60.0
"""A start counts as successful if the process then runs for at least this number of seconds."""
GIVE_UP = 3600.0
"""If every start of a process fails for this number of seconds, the process is not started again.
If the process is a server, the federation stops. The time is long, so that somebody can free space
on a full disk."""
SCARCE = 2**26
"""If a process dies while the disk has less free space than this number of bytes, the log states
the free space."""
PER_PROCESS = 10
"""Maximum number of clients per process."""


@dataclass
class Supervised:
    """A process that is started again when it dies.

    Args:
        start: starts the process, and does not wait for it.
        started_at: time of the latest start.
        needed: whether the federation stops if all starts of the process fail (see `GIVE_UP`).
    """

    start: Callable[[], None]
    started_at: float
    needed: bool = True
    wait: float = SHORTEST
    """Seconds between the next death of the process and its restart."""
    failing_since: float | None = None
    """Time of the first death after the last successful start; None before the first death."""
    restart_at: float | None = None
    """Time of the next start; None while the process runs."""
    recorded: int | None = None
    """The process id that is written in the federation's folder; None if there is none."""


class SupervisedFederation:
    """A federation whose processes are restarted when they die.

    Args:
        federation: the federation, with Redis and aggregator already running.
        folder: the folder with the federation's state.
        clock: function that returns the time in seconds.
        pause: function that waits for a number of seconds.
    """

    def __init__(
        self,
        federation: LocalServers,
        folder: ServedFolder,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._federation = federation
        self._folder = folder
        self._clock = clock
        self._pause = pause
        # The `launch` methods do not wait until the process listens, because other processes may
        # die during such a wait.
        starts = {"redis": federation.launch_redis, "aggregator": federation.launch_aggregator}
        self._supervised = {name: Supervised(start, clock()) for name, start in starts.items()}
        for name in self._supervised:
            self._record(name)

    def start_agents(self, clients: int) -> None:
        """Starts the given number of clients, which take part in any run that selects them."""
        for number, first in enumerate(range(0, clients, PER_PROCESS)):
            name = f"agents-{number}"
            start = partial(self._start_group, name, min(PER_PROCESS, clients - first))
            start()
            self._supervised[name] = Supervised(start, self._clock(), needed=False)
            self._record(name)

    def watch(self) -> None:
        """Announces the federation; then restarts processes when they die.

        Raises:
            ChildFailed: every start of a server failed for `GIVE_UP` seconds.
        """
        self._folder.announce(self._federation.url)
        while True:
            for name in list(self._supervised):
                self._check(name)
            self._pause(POLL)

    def _check(self, name: str) -> None:
        restart_at = self._supervised[name].restart_at
        if restart_at is not None:
            if self._clock() >= restart_at:
                self._restart(name)
            return
        self._record(name)
        code = self._federation.processes[name].poll()
        if code is not None:
            self._failed(name, f"exited with code {code}")

    def _restart(self, name: str) -> None:
        one = self._supervised[name]
        one.started_at, one.restart_at = self._clock(), None
        try:
            one.start()
        except (OSError, RampartError) as error:
            # For example, the disk is full, so a configuration file cannot be written.
            self._failed(name, f"cannot be started ({error})")
        else:
            self._record(name)

    def _record(self, name: str) -> None:
        """Writes the process's id to the folder; if this fails, the next check tries again."""
        one, pid = self._supervised[name], self._federation.processes[name].pid
        if one.recorded != pid:
            with suppress(OSError):
                self._folder.record_process(name, pid)
                one.recorded = pid

    def _failed(self, name: str, how: str) -> None:
        """Sets the time of the next start."""
        one, now = self._supervised[name], self._clock()
        one.recorded = None
        with suppress(OSError):
            self._folder.forget_process(name)
        if one.failing_since is None or now - one.started_at >= STEADY:
            one.failing_since, one.wait = now, SHORTEST
        tail = self._federation.processes.tail(name)
        room = shutil.disk_usage(self._folder.path).free
        if room < SCARCE:
            tail = f"the disk has only {room / 2**20:.1f} MiB free; {tail}"
        if now - one.failing_since >= GIVE_UP:
            how += f"; every start in the last {GIVE_UP / 60:g} minutes failed"
            if one.needed:
                raise ChildFailed(f"{name} {how}; {tail}")
            log.error(
                "%s %s; its clients stay offline until the next `rampart serve`; %s",
                name,
                how,
                tail,
            )
            del self._supervised[name]
            return
        log.warning("%s %s; waiting %g s before the next start; %s", name, how, one.wait, tail)
        one.restart_at = now + one.wait
        one.wait = min(2 * one.wait, LONGEST)

    def _start_group(self, name: str, clients: int) -> None:
        """Starts a process that hosts clients; clients that joined earlier keep their identity."""
        state = self._federation.folder / "clients" / name
        state.mkdir(parents=True, exist_ok=True)
        tokens = provide_tokens(
            state, clients, lambda count: self._federation.operator.mint_unbound(count, LIFETIME)
        )
        self._federation.processes.python(
            name,
            "rampart_fl.services.client_agent",
            RAMPART_AGGREGATOR=self._federation.url,
            RAMPART_CLIENTS=str(clients),
            RAMPART_STATE=str(state),
            RAMPART_JOIN_TOKENS=str(tokens),
            # Without this setting, the process would exit when all of its clients are barred. It
            # would then be restarted again and again.
            RAMPART_STAY_WHEN_BARRED="true",
            OMP_NUM_THREADS="1",
        )


def require_free(port: int) -> None:
    """Refuses a port on which another process listens.

    Raises:
        ConfigurationError: the port is in use.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise ConfigurationError(
                f"port {port} cannot be used ({error.strerror}); choose another port with --port"
            ) from None
