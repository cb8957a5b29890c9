"""`rampart serve`: a long-lived federation on this machine, with optional agents."""

import logging
import os
import socket
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from rampart_fl.services.console.launcher.federation_folder import ServedFolder
from rampart_fl.services.console.launcher.processes import ChildFailed
from rampart_fl.services.console.launcher.servers import LocalServers
from rampart_fl.shared.errors import ConfigurationError

log = logging.getLogger(__name__)
POLL = 0.2
"""Seconds between checks of the processes."""
MOST, WITHIN = 5, 120.0
"""If one process dies `MOST` times within `WITHIN` seconds, the federation is stopped."""
PER_PROCESS = 10
"""Maximum number of clients per process."""


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
        self._deaths: dict[str, deque[float]] = {}
        # A restart does not wait until the process listens: meanwhile, other processes may die.
        self._starts: dict[str, Callable[[], None]] = {
            "redis": federation.launch_redis,
            "aggregator": federation.launch_aggregator,
        }
        for name in self._starts:
            self._note(name)

    def start_agents(self, clients: int) -> None:
        """Starts the given number of clients, which take part in any run that selects them."""
        for number, first in enumerate(range(0, clients, PER_PROCESS)):
            name = f"agents-{number}"
            self._starts[name] = partial(self._start_group, name, min(PER_PROCESS, clients - first))
            self._start(name)

    def watch(self) -> None:
        """Announces the federation; then restarts processes when they die.

        Raises:
            ChildFailed: a process dies repeatedly.
        """
        self._folder.announce(self._federation.url)
        while True:
            for name in self._starts:
                code = self._federation.processes[name].poll()
                if code is not None:
                    self._died(name, code)
                    self._start(name)
            self._pause(POLL)

    def _start(self, name: str) -> None:
        self._starts[name]()
        self._note(name)

    def _note(self, name: str) -> None:
        self._folder.record_process(name, self._federation.processes[name].pid)

    def _died(self, name: str, code: int) -> None:
        deaths, now = self._deaths.setdefault(name, deque(maxlen=MOST)), self._clock()
        deaths.append(now)
        tail = self._federation.processes.tail(name)
        if len(deaths) == MOST and now - deaths[0] < WITHIN:
            raise ChildFailed(f"{name} died {MOST} times, the last time with code {code}; {tail}")
        log.warning("%s exited with code %s and is restarted; %s", name, code, tail)

    def _start_group(self, name: str, clients: int) -> None:
        """Starts a process that hosts clients; clients that joined earlier keep their identity."""
        state = self._federation.folder / "clients" / name
        state.mkdir(parents=True, exist_ok=True)
        tokens = state / "join-tokens"
        if not tokens.exists():
            made = self._federation.operator.mint_unbound(clients).tokens
            options = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            with os.fdopen(os.open(tokens, options, 0o600), "w", encoding="utf-8") as file:
                file.write("\n".join(made))
        self._federation.processes.python(
            name,
            "rampart_fl.services.client_agent",
            RAMPART_AGGREGATOR=self._federation.url,
            RAMPART_CLIENTS=str(clients),
            RAMPART_STATE=str(state),
            RAMPART_JOIN_TOKENS=str(tokens),
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
