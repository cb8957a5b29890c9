"""Delays a round until the disk has space for the round, and informs the operators of the delay."""

import logging
from collections.abc import Sequence

from rampart_fl.services.aggregator.state.run_store import RunStore
from rampart_fl.services.aggregator.worker.round_engine import RoundEngine
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.runtime.compute import Compute

log = logging.getLogger(__name__)


class DiskSpace:
    """Checks the free space before each round, and reports a shortage to the operators.

    Args:
        state: the state of the run, which records what the run waits for.
        round_engine: computes how much disk space a round needs.
        compute: runs a function on the round engine's thread.
        experiment: the run's experiment.
        fence: the lease's fencing token.
    """

    def __init__(
        self,
        state: RunStore,
        round_engine: RoundEngine,
        compute: Compute,
        experiment: Experiment,
        fence: int,
    ) -> None:
        self._state = state
        self._round_engine = round_engine
        self._compute = compute
        self._experiment = experiment
        self._fence = fence
        self._reported = False

    async def lacking(self, round_: int, candidates: Sequence[str] | None) -> bool:
        """Whether a round has to wait for disk space; also reports the wait to the operators.

        Args:
            round_: number of the round.
            candidates: the clients that can be selected; None if no round can open now.
        """
        shortage = ""
        if candidates is not None:
            shortage = await self._compute(self._shortage, round_, candidates)
        await self._state.hold(self._fence, shortage)
        if shortage and not self._reported:
            log.warning("waiting for %s", shortage, extra={"run": self._state.run})
        elif self._reported and not shortage:
            log.info("no longer waiting for disk", extra={"run": self._state.run})
        self._reported = bool(shortage)
        return bool(shortage)

    def _shortage(self, round_: int, candidates: Sequence[str]) -> str:
        selected = self._experiment.draw(round_, candidates)
        return self._round_engine.disk_shortage(len(self._round_engine.clients_with_rows(selected)))
