"""One run of a running federation: submits the run, starts the run's clients, deletes the run."""

import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from rampart_fl.services.console.connection.operated_run import POLL, OperatedRun
from rampart_fl.services.console.connection.operator import Operator
from rampart_fl.services.console.launcher.client_processes import ClientProcesses
from rampart_fl.services.console.launcher.servers import START, LocalServers
from rampart_fl.shared.errors import ConfigurationError, RampartError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.protocol.runs import OVER


class LocalRun:
    """Executes an experiment on servers that keep running after the experiment.

    Args:
        servers: the running servers.
        experiment: the experiment to run.
        folder: folder for the state and logs of the run's clients; created if missing.
        identities: folder with one subfolder per client. Each subfolder holds the client's
            identity, which the client keeps in later runs.

    The object is a context manager. On every exit, even after an error, the object stops the run's
    clients and deletes the run.
    """

    def __init__(
        self, servers: LocalServers, experiment: Experiment, folder: Path, identities: Path
    ) -> None:
        self.experiment = experiment
        self.folder = folder.absolute()
        self.identities = identities
        self.operator = Operator(servers.url, servers.token)
        self.processes = type(servers.processes)(self.folder / "logs")
        tap = servers.settings.get("RAMPART_TEST_TAP")
        self.clients = ClientProcesses(
            experiment, self.folder, self.operator, self.processes, test_tap=tap
        )
        self._run: OperatedRun | None = None

    def __enter__(self) -> Self:
        try:
            self.submit()
        except BaseException:  # Clean up after any error, even an interrupt.
            self.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def run(self) -> OperatedRun:
        """The run of the experiment, which exists after `submit`."""
        assert self._run is not None
        return self._run

    def submit(self) -> None:
        """Submits the experiment, and waits until its run has started."""
        self._run = self.operator.run(self.operator.submit(self.experiment).run)
        started = self._run.await_start(START)
        if started.state in OVER:
            raise ConfigurationError(
                f"run {started.run} has already ended ({started.state}): {started.reason}"
            )

    def start_clients(self) -> None:
        """Starts every client of the experiment with its stored identity."""
        for name, (_, slots) in self.clients.groups().items():
            for position, slot in enumerate(slots):
                own = self.folder / "clients" / name / f"client-{position}"
                own.mkdir(parents=True, exist_ok=True)
                client = self.experiment.client_names[slot]
                shutil.copy(self.identities / client / "identity.json", own)
        self.clients.start()

    def stop(self) -> None:
        """Stops the run's clients, ends and deletes the run, and leaves the servers running."""
        self.processes.stop_all()
        try:
            if self._run is not None:
                self._end(self._run)
        finally:
            self.operator.close()

    def _end(self, run: OperatedRun) -> None:
        """Stops and deletes a run; evicts all members, so that the run does not wait for them."""
        with suppress(RampartError):  # The run may have ended already.
            run.steer("stop")
        while run.info().state not in OVER:
            with suppress(RampartError):
                for member in run.members():
                    if not member.evicted:
                        run.decide(member.client_id, "evict", "the run was abandoned")
            # More members may join while the run stops; the next iteration evicts them.
            time.sleep(POLL)
        run.delete()
