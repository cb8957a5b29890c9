"""Whole federations for tests: the real services on loopback, with clients controlled by the test.

The function `federation` starts the services, and the function `run_on` executes one experiment on
these services. The pytest fixtures of `rampart_fl.pytest_plugin` do the same. The function `run`
starts separate services for one experiment. Use `run` in tests that need special settings, and in
tests that kill the services.
"""

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from rampart_fl.services.console.connection.operated_run import OperatedRun
from rampart_fl.services.console.connection.operator import Operator
from rampart_fl.services.console.launcher.forked import ForkedProcesses
from rampart_fl.services.console.launcher.local_federation import LocalFederation
from rampart_fl.services.console.launcher.local_run import LocalRun
from rampart_fl.services.console.launcher.servers import LocalServers
from rampart_fl.shared.agent.client import AggregatorClient
from rampart_fl.shared.agent.identity import Identity, establish, token_renewal
from rampart_fl.shared.agent.loop import Participant, participate
from rampart_fl.shared.agent.membership import next_run
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.protocol.messages import PHASES, Phase, Ticket
from rampart_fl.shared.protocol.runs import RunInfo, RunStatus
from rampart_fl.shared.validation import validate

T = TypeVar("T")
PATIENCE = 60.0
"""Time limit in seconds for a request, for a coroutine, and by default for `TestClients.wait`."""
CLIENTS = "test-clients"
"""Subfolder of the federation's folder; it holds the identities of the test's clients."""
NO_SETTINGS: Mapping[str, str] = {}


class TestClients:
    """Clients controlled by a test; they run on one background thread.

    Args:
        operator: a connection that uses the operator's token.
        folder: folder that stores the clients' identities, so that a name always refers to the same
            client.

    The object is a context manager, which stops all its clients on exit.
    """

    __test__ = False  # Keeps pytest from collecting this class as tests.

    def __init__(self, operator: Operator, folder: Path) -> None:
        self.operator = operator
        self.folder = folder
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="test-clients")
        self._tasks: dict[str, asyncio.Task[Ticket]] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name in list(self._tasks):
            self.vanish(name)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def url(self) -> str:
        """URL of the aggregator."""
        return self.operator.url

    @cached_property
    def run(self) -> OperatedRun:
        """The run that the test is about; a test may assign another run.

        By default, the first use of this attribute selects the current run, or the newest run if no
        run is current.
        """
        return self.operator.run()

    def join(self, name: str) -> Identity:
        """The identity of the client with this name; on the first call, the client joins."""
        kept = self.folder / name / "identity.json"
        token = None if kept.exists() else self.operator.mint([name]).tokens[0]
        return self.soon(establish(self.url, self.folder / name, token, name))

    def accept(self, name: str, slot: int | None = None) -> Identity:
        """Makes a client accept the run; returns the client's identity. Starts no participant."""
        identity = self.join(name)
        connection = self.client(name)

        async def answer() -> None:
            try:
                await connection.answer(self.run.id, True, slot=slot)
            finally:
                await connection.close()

        self.soon(answer())
        return identity

    def client(self, name: str, compress: bool = False) -> AggregatorClient:
        """A connection with this client's identity, for one event loop; close it after use."""
        return AggregatorClient(self.url, self.join(name).token, PATIENCE, compress=compress)

    def take_part(
        self,
        name: str,
        participant: Participant,
        compress: bool = False,
        slot: int | None = None,
    ) -> None:
        """Starts a participant for the client `name`; the client accepts the next offered run.

        The participant runs until the client gets its last ticket of the run. If `slot` is given,
        the client asks for this slot.
        """

        async def accept(run: str, part: dict[str, Any]) -> tuple[bool, str, int | None]:
            del run, part
            return True, "", slot

        async def work() -> Ticket:
            try:
                async with token_renewal(connection, self.folder / name):
                    first = await next_run(connection, accept, name)
                    if not first.run:
                        return first
                    return await participate(connection, participant, name, first.run)
            finally:
                await connection.close()

        async def start() -> asyncio.Task[Ticket]:
            return asyncio.create_task(work())

        connection = self.client(name, compress)
        self._tasks[name] = self.soon(start())

    def last_ticket(self, name: str) -> Ticket:
        """Waits until a client has left the run, and returns the client's last ticket."""
        task = self._tasks[name]

        async def end() -> Ticket:
            return await asyncio.shield(task)

        return self.soon(end())

    def vanish(self, name: str) -> None:
        """Stops a client immediately, without notifying the aggregator."""
        task = self._tasks.pop(name)

        async def end() -> None:
            # Code in the task may suppress a cancellation, so cancel the task again until it ends.
            while not task.done():
                task.cancel()
                await asyncio.wait([task], timeout=1)
            await asyncio.gather(task, return_exceptions=True)

        self.soon(end())

    def wait(
        self, phase: Phase = "done", round_: int | None = None, patience: float = PATIENCE
    ) -> RunStatus:
        """Waits until the run reaches `phase` of round `round_`; returns the run's status.

        If `round_` is None, the method waits for this phase of the current round. The run does not
        stop at the awaited phase, so the returned status can show a later phase. The status shows
        exactly the awaited phase if only the test's clients can end this phase.

        Raises:
            TimeoutError: the run did not reach the phase; the message states the run's status.
            Exception: the exception that made a participant fail.
        """
        give_up = time.monotonic() + patience
        where: RunInfo | RunStatus = self.run.info()
        while True:
            # A queued run has no status yet, so request its `RunInfo` until the run has started.
            if isinstance(where, RunInfo) and where.state == "queued":
                where = self.run.info()
            else:
                where = self.run.status()
                wanted = (where.round if round_ is None else round_, PHASES.index(phase))
                if (where.round, PHASES.index(where.phase)) >= wanted:
                    return where
            for task in self._tasks.values():
                if task.done():
                    task.result()
            if time.monotonic() > give_up:
                place = "the current round" if round_ is None else f"round {round_}"
                raise TimeoutError(
                    f"the federation did not reach the phase {phase!r} of {place}: {where}"
                )
            time.sleep(0.02)

    def soon(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the clients' thread, and returns its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)


class RunningFederation(TestClients):
    """A run on this machine, with clients controlled by the test.

    Args:
        local: a federation that executes only this run, or a run of a federation that continues
            after the run.
        folder: folder for the identities of the test's clients.
    """

    def __init__(self, local: LocalFederation | LocalRun, folder: Path) -> None:
        super().__init__(local.operator, folder)
        self.local = local
        self.run = local.run
        self.experiment = local.experiment

    def start_clients(self) -> None:
        """Starts every client of the experiment, honest or attacking, in child processes."""
        if isinstance(self.local, LocalRun):
            for name in self.experiment.client_names:
                self.join(name)
        self.local.start_clients()


def federation(folder: Path, settings: Mapping[str, str] = NO_SETTINGS) -> LocalServers:
    """A context manager that runs the servers of a federation; no run is created.

    Args:
        folder: folder for state and logs.
        settings: settings of the aggregator, such as `offline_after` for RAMPART_OFFLINE_AFTER.
    """
    chosen = variables({"predictable_draws": "true", **settings})
    return LocalServers(folder, chosen, processes=ForkedProcesses)


@contextmanager
def run_on(
    servers: LocalServers, experiment: Experiment | str | Path, folder: Path
) -> Iterator[RunningFederation]:
    """Context manager that starts a run on a federation's servers, and deletes the run on exit.

    Args:
        servers: the servers of the federation, which must not execute another run meanwhile.
        experiment: an experiment, the path of its file, or the name of a shipped experiment.
        folder: folder for the state and logs of the run's clients.
    """
    identities = servers.folder / CLIENTS
    with (
        LocalRun(servers, validate(load_experiment(experiment)), folder, identities) as local,
        RunningFederation(local, identities) as running,
    ):
        yield running


def dismiss(servers: LocalServers) -> None:
    """Bars from the federation all clients that joined without `TestClients`.

    A barred client cannot take part in later runs. The client's next ticket says that the client is
    barred, and an agent then ends without an error. The function does not revoke tokens: with a
    revoked token, an agent on a thread of the test would fail, and pytest would report the error of
    this thread.
    """
    own = servers.folder / CLIENTS
    for client in servers.operator.clients():
        if client.barred is None and not (own / client.client_id).exists():
            servers.operator.decide_everywhere(client.client_id, "evict", "the test is over")


@contextmanager
def run(
    experiment: Experiment | str | Path, folder: Path, **settings: str
) -> Iterator[RunningFederation]:
    """Runs a separate federation, which stops when the context exits.

    Args:
        experiment: an experiment, the path of its file, or the name of a shipped experiment.
        folder: folder for state and logs.
        settings: settings of the aggregator, such as `offline_after="90"` for
            RAMPART_OFFLINE_AFTER.
    """
    checked, own = validate(load_experiment(experiment)), variables(settings)
    with (
        LocalFederation(checked, folder, settings=own, processes=ForkedProcesses) as local,
        RunningFederation(local, local.folder / CLIENTS) as running,
    ):
        yield running


def load_experiment(experiment: Experiment | str | Path) -> Experiment:
    """Loads an experiment by its path or name; an `Experiment` object is returned unchanged."""
    return experiment if isinstance(experiment, Experiment) else Experiment.load(experiment)


def variables(settings: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of an aggregator's settings.

    >>> variables({"offline_after": "90"})
    {'RAMPART_OFFLINE_AFTER': '90'}
    """
    return {f"RAMPART_{name.upper()}": value for name, value in settings.items()}
