"""Reads everything that a report on one run needs, from a federation that is running."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from rampart_fl.services.console.connection.operated_run import OperatedRun
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.figures.comparison import run_figures
from rampart_fl.shared.figures.run_result import RunFigures
from rampart_fl.shared.protocol.messages import RoundRecord
from rampart_fl.shared.protocol.runs import Member, RunInfo
from rampart_fl.shared.protocol.stored_rounds import VerdictMatrix

MATRIX = 1000
"""Number of rounds in one matrix of verdicts."""


@dataclass(frozen=True)
class RunReader:
    """One run of a federation; its parts are read on demand.

    Args:
        run: the run.
        info: the run's state.
    """

    run: OperatedRun
    info: RunInfo

    @staticmethod
    def of(run: OperatedRun) -> "RunReader":
        """A reader of this run in its current state.

        Raises:
            OperatorRefused: the run does not exist.
        """
        return RunReader(run, run.info())

    @property
    def started(self) -> bool:
        """Whether the run has started; False if it is queued, or if it ended before its start."""
        return self.info.started_at is not None

    @cached_property
    def experiment(self) -> Experiment:
        """The whole experiment."""
        return self.run.experiment()

    @cached_property
    def members(self) -> list[Member]:
        """The clients that answered the run's offer, or take part in the run."""
        return self.run.members() if self.started else []

    @property
    def slots(self) -> dict[str, int]:
        """The slots of the run's members, keyed by client."""
        return {one.client_id: one.slot for one in self.members if one.slot is not None}

    def records(self, mixing: bool = False) -> Iterator[RoundRecord]:
        """The records of all rounds that are still kept, one page at a time."""
        return self.run.records(0, self.info.round, mixing) if self.started else iter(())

    def matrices(self, client: str) -> Iterator[VerdictMatrix]:
        """The verdicts on one client in all rounds, up to 1,000 rounds at a time."""
        for first in range(0, self.info.round + 1 if self.started else 0, MATRIX):
            yield self.run.verdicts(first, first + MATRIX - 1, client)

    @cached_property
    def evaluations(self) -> dict[str, dict[str, float]]:
        """The metrics that clients measured for the final models, keyed by client."""
        return self.run.evaluations() if self.started else {}

    @cached_property
    def figures(self) -> RunFigures:
        """The metrics of the run so far."""
        evicted = [one.client_id for one in self.members if one.evicted]
        return run_figures(self.experiment, self.records(), self.slots, evicted, self.seconds)

    @property
    def seconds(self) -> float | None:
        """The duration of a run that has ended."""
        began, ended = self.info.started_at, self.info.ended_at
        return None if began is None or ended is None else ended - began
