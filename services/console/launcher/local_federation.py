"""A whole federation on this machine: real Redis, aggregator, clients and attackers on loopback."""

from functools import cached_property
from pathlib import Path

from rampart_fl.services.console.connection.operated_run import OperatedRun
from rampart_fl.services.console.launcher.client_processes import ClientProcesses
from rampart_fl.services.console.launcher.processes import Processes
from rampart_fl.services.console.launcher.servers import START, LocalServers
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.toml import to_toml
from rampart_fl.shared.protocol.runs import OVER


class RunEnded(ConfigurationError):
    """The run in a federation's folder has already ended, so no client can take part in it."""


class LocalFederation(LocalServers):
    """A federation (Redis, aggregator and clients) whose first run is the given experiment.

    This class inherits from `LocalServers`, because callers also use the inherited methods to
    restart Redis and the aggregator.

    Args:
        experiment: the experiment to run.
        folder: folder for state, logs and records; created if missing.
        per_process: maximum number of clients per process.
        settings: additional RAMPART_ variables for the aggregator.
        processes: starts the processes; by default, each process is a new interpreter.
    """

    def __init__(
        self,
        experiment: Experiment,
        folder: Path,
        per_process: int = 10,
        settings: dict[str, str] | None = None,
        processes: type[Processes] = Processes,
    ) -> None:
        super().__init__(folder, settings, processes=processes)
        self.experiment = experiment
        tap = self.settings.get("RAMPART_TEST_TAP")
        self.clients = ClientProcesses(
            experiment, self.folder, self.operator, self.processes, per_process, tap
        )

    @cached_property
    def run(self) -> OperatedRun:
        """The run of the experiment; it exists as soon as the servers have started."""
        return self.operator.run()

    def start_servers(self) -> None:
        """Starts Redis and the aggregator, and waits until the run has started.

        Raises:
            RunEnded: the run has already ended, for example when the folder was used before.
        """
        super().start_servers()
        started = self.run.await_start(START)
        if started.state in OVER:
            raise RunEnded(
                f"run {started.run} has already ended ({started.state}): {started.reason}"
            )

    def variables(self) -> dict[str, str]:
        """Environment variables of an aggregator that submits the experiment at its first start."""
        path = self.folder / "experiment.toml"
        if not path.exists():
            path.write_text(to_toml(self.experiment.tables()), encoding="utf-8")
        return {
            "RAMPART_EXPERIMENT": str(path),
            # With this setting, the server's random draws follow from the experiment's seed. Every
            # run of the experiment, even a simulated run, then gives the same result.
            "RAMPART_PREDICTABLE_DRAWS": "true",
            **super().variables(),
        }

    def start_clients(self) -> None:
        """Starts every client of the experiment, both honest clients and attackers."""
        self.clients.start()
