"""One run of a running federation: submits the run, starts the run's clients, deletes the run."""

import shutil
import time
from contextlib import suppress
from pathlib import Path

from rampart_fl.services.console.launcher.local import LocalFederation
from rampart_fl.services.console.launcher.servers import START, LocalServers
from rampart_fl.services.console.operator import POLL, Operator
from rampart_fl.shared.errors import ConfigurationError, RampartError
from rampart_fl.shared.experiment.schema import Attackers, Experiment
from rampart_fl.shared.protocol.runs import OVER


class LocalRun(LocalFederation):
    """Executes an experiment on servers that keep running after the experiment.

    Args:
        servers: the running servers.
        experiment: the experiment to run.
        folder: folder for the state and logs of the run's clients; created if missing.
        identities: folder with one subfolder per client for its identity, so that a client keeps
            its identity in later runs.
    """

    def __init__(
        self, servers: LocalServers, experiment: Experiment, folder: Path, identities: Path
    ) -> None:
        super().__init__(
            experiment, folder, settings=servers.settings, processes=type(servers.processes)
        )
        self.servers, self.identities = servers, identities
        self.url, self.token = servers.url, servers.token
        self.operator = Operator(servers.url, servers.token)
        self.run: str | None = None

    def start_servers(self) -> None:
        """Submits the experiment, and waits until its run has started."""
        self.run = self.operator.run = self.operator.submit(self.experiment).run
        started = self.operator.await_start(START)
        if started.state in OVER:
            raise ConfigurationError(f"run {started.run} {started.state}: {started.reason}")

    def start_group(
        self, name: str, role: Attackers | None, slots: list[int], join_tokens: list[str]
    ) -> None:
        """Starts one process that hosts the clients of these slots, under their identities."""
        for position, slot in enumerate(slots):
            own = self.folder / "clients" / name / f"client-{position}"
            own.mkdir(parents=True, exist_ok=True)
            client = self.experiment.client_names[slot]
            shutil.copy(self.identities / client / "identity.json", own)
        super().start_group(name, role, slots, join_tokens)

    def stop(self) -> None:
        """Stops the run's clients, ends and deletes the run, and leaves the servers running."""
        self.processes.stop_all()
        try:
            if self.run is not None:
                self._end(self.run)
        finally:
            self.operator.close()

    def _end(self, run: str) -> None:
        """Stops and deletes a run; evicts all members, because the run would wait for them."""
        with suppress(RampartError):  # The run may have ended already.
            self.operator.steer("stop")
        while self.operator.info().state not in OVER:
            with suppress(RampartError):
                for member in self.operator.members():
                    if not member.evicted:
                        self.operator.decide(member.client_id, "evict", "the run was abandoned")
            # More members may join while the run stops; the next iteration evicts them.
            time.sleep(POLL)
        self.operator.delete(run)
