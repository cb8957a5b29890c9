"""Delays a round until the disk has space for the round, and informs the operators of the delay."""

import logging
from collections.abc import Collection, Sequence

from rampart_fl.services.aggregator.worker.run_resources import RunResources

log = logging.getLogger(__name__)


class DiskSpace:
    """Checks the free space before each round, and reports a shortage to the operators.

    Args:
        resources: the run. The run's state records what the run waits for, and the run's round
            engine computes how much disk space a round needs.
    """

    def __init__(self, resources: RunResources) -> None:
        self._state = resources.stores.state
        self._round_engine = resources.round_engine
        self._compute = resources.compute
        self._experiment = resources.experiment
        self._fence = resources.fence
        self._reported = False

    async def lacking(
        self, round_: int, candidates: Sequence[str] | None, awaited: Collection[str] = ()
    ) -> bool:
        """Whether a round has to wait for disk space; also reports the wait to the operators.

        Args:
            round_: number of the round.
            candidates: the clients that can be selected; None if no round can open now.
            awaited: the clients whose next uploads a detector awaits.
        """
        shortage = ""
        if candidates is not None:
            shortage = await self._compute(self._shortage, round_, candidates, awaited)
        await self._state.hold(self._fence, shortage)
        if shortage and not self._reported:
            log.warning("waiting for %s", shortage, extra={"run": self._state.run})
        elif self._reported and not shortage:
            log.info("no longer waiting for disk", extra={"run": self._state.run})
        self._reported = bool(shortage)
        return bool(shortage)

    def _shortage(self, round_: int, candidates: Sequence[str], awaited: Collection[str]) -> str:
        engine = self._round_engine
        chosen = self._experiment.select(round_, candidates, awaited, engine.rounds.seed)
        rows = len(engine.clients_with_rows(chosen.clients))
        return engine.disk_shortage(rows, rows - len(chosen.examined))
