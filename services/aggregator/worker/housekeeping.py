"""Housekeeping: removes unused blobs and deleted runs, and cancels runs that wait too long."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterator

from rampart_fl.services.aggregator.state.redis_access import LeaseLost
from rampart_fl.services.aggregator.state.run_blobs import RunBlobs
from rampart_fl.services.aggregator.state.stores import Stores
from rampart_fl.services.aggregator.worker.disk.blobs_in_use import blobs_in_use
from rampart_fl.services.aggregator.worker.disk.kept_models import KeptModels
from rampart_fl.shared.protocol.runs import OVER
from rampart_fl.shared.runtime.memory import release_unused_memory

log = logging.getLogger(__name__)
SWEEP = 600.0
"""Seconds between sweeps. A sweep removes an unreferenced blob only if it was stored more than this
many seconds ago."""
REMOVAL = 1.0
"""Seconds between searches for deleted runs."""
RETRY = 30.0
"""Seconds from a failed removal of deleted runs to the next attempt."""
DAY = 86_400


class Housekeeping:
    """Does a federation's housekeeping while this worker holds the lease.

    Args:
        stores, blobs: the federation's state.
        fence: the worker's fencing token.
        models_kept: for each run, the number of newest rounds whose global models are kept.
    """

    def __init__(self, stores: Stores, blobs: RunBlobs, fence: int, models_kept: int = 1) -> None:
        self._stores = stores
        self._blobs = blobs
        self._fence = fence
        self._models_kept = models_kept
        self._swept: set[str] = set()
        """Runs that need no further sweep, because they were swept after their end."""
        self._busy: set[str] = set()
        """Runs whose blobs are being swept or removed. A run's blobs are never swept and removed at
        the same time."""

    async def sweep_regularly(self) -> None:
        """Sweeps the blobs of all runs while the worker holds the lease."""
        while True:
            await self.sweep()
            # Keep expired tokens for a day. During this day, a client that uses such a token learns
            # that the token has expired.
            await self._stores.join_tokens.forget(time.time() - DAY)
            # A sweep needs much memory for the digests of all used blobs, so release it now.
            await asyncio.to_thread(release_unused_memory)
            await asyncio.sleep(SWEEP)

    async def sweep(self) -> None:
        """Deletes unused blobs: refused uploads, old customized models, and remains of crashes."""
        for info in await self._stores.runs.entries():
            if info.run in self._swept | self._busy:
                continue
            try:
                with self.alone(info.run):
                    swept = await self._sweep_run(info.run)
            except LeaseLost:
                raise
            except Exception:  # A run that cannot be read must not stop the federation.
                log.exception(
                    "a run cannot be read, so none of its blobs is deleted",
                    extra={"run": info.run},
                )
                continue
            over = info.ended_at is not None and info.ended_at < time.time() - SWEEP
            self._swept |= {info.run} if swept and info.state in OVER and over else set()

    @contextlib.contextmanager
    def alone(self, run: str) -> Iterator[None]:
        """Marks a run as busy for a `with` block.

        No other task of this object sweeps or removes a busy run.
        """
        self._busy.add(run)
        try:
            yield
        finally:
            self._busy.remove(run)

    async def _sweep_run(self, run: str) -> bool:
        """Deletes a run's unused blobs; returns False if it is unknown which blobs are used."""
        # Read the time before the list of used blobs. In the other order, this worker could be
        # suspended between the two reads. Blobs that another worker stores during the suspension
        # would then not count as new.
        newest = time.time()
        stores = self._stores.of_run(run)
        state = await stores.state.read()
        if state is None:
            return False
        blobs = self._blobs.of_run(run)
        records = stores.records(blobs)
        try:
            kept = state.snapshot.blobs() | await records.blob_digests()
        except FileNotFoundError:
            log.error(
                "a segment of records is missing from the blobs, so no blob of this run is deleted",
                extra={"run": run},
            )
            return False
        models = KeptModels(self._models_kept)
        await models.restore(records, state.round)
        kept |= models.digests
        for receipt in await stores.uploads.every_receipt():
            kept |= {receipt.digest, *([receipt.started] if receipt.started else [])}
        # Uploads are still needed as long as no worker has handled their events, even if their
        # receipts have expired.
        kept |= await blobs_in_use(stores, state.snapshot.position)
        # Before a round is published, nothing in Redis refers to the round's new models. Blobs that
        # were stored after the round opened are therefore kept.
        if state.phase == "aggregating":
            newest = min(newest, state.opened_at)
        await asyncio.to_thread(blobs.sweep, kept, newest - SWEEP)
        return True

    async def remove_deleted_regularly(self) -> None:
        """Removes deleted runs while the worker holds the lease."""
        while True:
            succeeded = await self.remove_deleted()
            await asyncio.sleep(REMOVAL if succeeded else RETRY)

    async def remove_deleted(self) -> bool:
        """Removes the blobs and the keys of deleted runs; returns False if an error occurred."""
        succeeded = True
        for run in await self._stores.runs.deleted_runs():
            if run in self._busy:
                continue
            try:
                with self.alone(run):
                    await asyncio.to_thread(self._blobs.remove, run)
                    await self._stores.runs.forget(run)
            except LeaseLost:
                raise
            except Exception:  # A run that cannot be removed must not stop the federation.
                succeeded = False
                log.exception("a deleted run cannot be removed yet", extra={"run": run})
            else:
                log.info("run removed", extra={"run": run})
        return succeeded

    async def expire(self) -> None:
        """Cancels each run that has not begun a round within the run's maximum waiting time."""
        now, runs = time.time(), self._stores.runs
        for info in await runs.entries():
            if info.wait_until is None or info.wait_until > now or info.state in OVER:
                continue
            waited = f"{info.wait_until - info.submitted_at:g} seconds"
            state = self._stores.of_run(info.run).state
            cause = await state.wait_reason()
            if info.state == "queued":
                reason = f"the run waited {waited} for {cause or 'other runs'}"
                await runs.drop(self._fence, info.run, now, "cancelled", reason)
            else:
                few = f"after {waited}, too few clients had accepted"
                why = f"the run waited {waited} for {cause}" if cause else few
                await state.expire(self._fence, why)
