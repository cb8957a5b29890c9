"""Ends rounds: publishes their outcomes and records, and deletes unused blobs."""

import logging
from collections.abc import Callable

from rampart_fl.services.aggregator.state.snapshot import Snapshot
from rampart_fl.services.aggregator.worker.disk.kept_models import KeptModels
from rampart_fl.services.aggregator.worker.disk.unused_blobs import UnusedBlobs
from rampart_fl.services.aggregator.worker.open_round import (
    OpenRoundData,
    barring_evidence,
    failed_record,
    published_record,
)
from rampart_fl.services.aggregator.worker.phases.state import PhaseState
from rampart_fl.services.aggregator.worker.run_clock import RunClock
from rampart_fl.services.aggregator.worker.run_resources import RunResources
from rampart_fl.shared.protocol.messages import RoundRecord

log = logging.getLogger(__name__)
Observer = Callable[[RoundRecord, int | None], None]
"""Receives the record of a round, and the pool's size in bytes (None if the round failed)."""


class RoundPublisher:
    """Ends the rounds of one run under one lease.

    Args:
        resources: the run's state, and the engine that computes on it.
        models_kept: number of newest rounds whose global models are kept.
        clock: the clock by which the rounds were opened.
    """

    def __init__(self, resources: RunResources, models_kept: int, clock: RunClock) -> None:
        self.clock = clock
        self.stores = resources.stores
        self.records = resources.records
        self.round_engine = resources.round_engine
        self.compute = resources.compute
        self.experiment = resources.experiment
        self.fence = resources.fence
        self.observers: list[Observer] = []
        self.warnings: list[str] = []
        self.kept_models = KeptModels(models_kept)
        self.unused_blobs = UnusedBlobs(
            self.stores, resources.blobs, self.compute, self.experiment.policy == "buffered"
        )

    @property
    def snapshot(self) -> Snapshot:
        """The newest published state of the run."""
        assert self.round_engine.snapshot is not None
        return self.round_engine.snapshot

    async def restore(self, round_: int) -> None:
        """Reads from the run's records which global models are kept.

        Args:
            round_: number of the run's current round.
        """
        await self.kept_models.restore(self.records, round_)

    async def publish(self, state: PhaseState, opened: OpenRoundData) -> None:
        """Publishes the outcome, then deletes the blobs that are no longer referenced."""
        closed, now = opened.closed, self.clock.now()
        assert closed is not None
        decided = closed.decided
        record = published_record(self.experiment, state, opened, closed, now)
        record = record.model_copy(update={"warnings": self.warnings})
        evicted, quarantines = barring_evidence(self.experiment, decided, state.round, now)
        abstained = list(decided.about("abstained"))
        await self.stores.rounds.publish(
            self.fence,
            await self.records.file(record),
            evicted,
            decided.snapshot,
            state.position,
            quarantines,
            abstained,
            everywhere=self.experiment.server.eviction.scope == "federation",
            reinstated=closed.reinstated,
        )
        self.observe(record, decided.pool_bytes)
        used = {d for r in opened.receipts.values() for d in (r.digest, r.started) if d}
        used |= self.kept_models.add(state.round, record.models.get("global"))
        await self.drop(closed.before.blobs() | used | opened.uploads, state.position)

    async def fail(self, state: PhaseState, opened: OpenRoundData, reason: str) -> None:
        """Ends a round without an outcome; the models and the pool remain unchanged."""
        record = failed_record(self.experiment, state, opened, reason, self.clock.now())
        quarantined = sorted((await self.stores.evictions.barred()).standing.quarantined)
        record = record.model_copy(update={"quarantined": quarantined, "warnings": self.warnings})
        moved = {"position": state.position, "pulls": state.pulls}
        snapshot = self.snapshot.model_copy(update=moved)
        filed = await self.records.file(record)
        await self.stores.rounds.publish(self.fence, filed, {}, snapshot, state.position)
        await self.compute(self.round_engine.abandon_round, snapshot)
        log.warning("round failed: %s", reason, extra={"round": state.round})
        self.observe(record, None)
        used = {receipt.digest for receipt in opened.receipts.values()} | opened.uploads
        await self.drop(used, state.position)

    async def drop(self, digests: set[str], position: str) -> None:
        """Deletes the given blobs, except blobs that are still in use.

        A blob is also in use if an event after `position` refers to it.
        """
        kept = self.snapshot.blobs() | self.kept_models.digests
        await self.unused_blobs.delete(digests, kept, position)

    def observe(self, record: RoundRecord, pool_bytes: int | None) -> None:
        """Reports a finished round to the observers, such as the metrics."""
        for observer in self.observers:
            observer(record, pool_bytes)
