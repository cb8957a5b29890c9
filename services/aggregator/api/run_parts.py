"""The objects of an aggregator process that belong to one run."""

from concurrent.futures import Executor
from dataclasses import dataclass

from rampart_fl.services.aggregator.api.admission import Admission
from rampart_fl.services.aggregator.api.recent_models import RecentModels
from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.aggregator.state.redis_records import RunDetails, RunSummary
from rampart_fl.services.aggregator.state.run_registry import RunRegistry
from rampart_fl.services.aggregator.state.stores import RunStores
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol.refusals import NotStarted
from rampart_fl.shared.protocol.runs import OVER


@dataclass(frozen=True)
class RunDefinition:
    """The parts of a run's state that never change after the run's start."""

    experiment: Experiment
    spec: ModelSpec


class RunParts:
    """The objects shared by all requests about one run.

    Args:
        run: the run's id.
        stores: the run's state.
        blobs: the run's blobs.
        disk: threads for all work on the disk.
        registry: the entries of all runs.
    """

    def __init__(
        self, run: str, stores: RunStores, blobs: Blobs, disk: Executor, registry: RunRegistry
    ) -> None:
        self.run = run
        self.stores = stores
        self._registry = registry
        self.blobs = blobs
        self.records = stores.records(blobs, disk=disk)
        self.models = RecentModels(blobs, disk)
        self.admission = Admission(blobs, disk)
        self._definition: RunDefinition | None = None

    async def definition(self) -> RunDefinition:
        """The run's experiment and the layout of its model; read only once, as they never change.

        Raises:
            NotStarted: the run has not started.
        """
        if self._definition is None:
            state = await self.state()
            self._definition = RunDefinition(state.experiment, state.spec)
        return self._definition

    async def state(self) -> RunDetails:
        """The whole state of the run.

        Raises:
            NotStarted: the run has not started.
        """
        state = await self.stores.state.read()
        if state is None:
            raise await self._never_started()
        return state

    async def summary(self) -> RunSummary:
        """The part of the run's state that is small and quick to parse.

        Raises:
            NotStarted: the run has not started.
        """
        summary = await self.stores.state.summary()
        if summary is None:
            raise await self._never_started()
        return summary

    async def _never_started(self) -> NotStarted:
        """The error for a run without state; it says whether the run ended before it started."""
        entry = await self._registry.entry(self.run)
        if entry is None or entry.state not in OVER:
            return self.not_started
        end = "failed" if entry.state == "failed" else f"was {entry.state}"
        reason = f": {entry.reason}" if entry.reason else ""
        return NotStarted(f"run {self.run} {end} before it started{reason}")

    @property
    def not_started(self) -> NotStarted:
        """The error for a request that needs the state of a run that has not started."""
        return NotStarted(f"run {self.run} has not started")
