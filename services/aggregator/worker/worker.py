"""The worker: holds the lease, executes one run after another, and computes on one thread."""

import asyncio
import json
import logging
import time
from concurrent.futures import ThreadPoolExecutor

from rampart_fl.services.aggregator.settings import TAP_ENABLED, Settings
from rampart_fl.services.aggregator.state.audit_log import Attribution
from rampart_fl.services.aggregator.state.operator_store import OWNER
from rampart_fl.services.aggregator.state.redis_access import LeaseLost
from rampart_fl.services.aggregator.state.redis_records import RunDetails
from rampart_fl.services.aggregator.state.run_blobs import RunBlobs
from rampart_fl.services.aggregator.state.run_registry import FOUNDING
from rampart_fl.services.aggregator.state.schema_migration import migrate
from rampart_fl.services.aggregator.state.stores import Stores
from rampart_fl.services.aggregator.worker.capacity import needs
from rampart_fl.services.aggregator.worker.coordinator import Coordinator
from rampart_fl.services.aggregator.worker.disk.quota import DiskQuota
from rampart_fl.services.aggregator.worker.housekeeping import Housekeeping
from rampart_fl.services.aggregator.worker.ranks import RankFailed, Ranks
from rampart_fl.services.aggregator.worker.round_engine import RoundEngine
from rampart_fl.services.aggregator.worker.round_publisher import Observer
from rampart_fl.services.aggregator.worker.run_resources import RunResources
from rampart_fl.services.aggregator.worker.run_start import check_experiment, start_run
from rampart_fl.services.aggregator.worker.torch_setup import set_up_torch
from rampart_fl.shared.errors import ConfigurationError, RampartError, Unavailable
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.runtime.compute import compute_on
from rampart_fl.shared.runtime.memory import release_unused_memory

log = logging.getLogger(__name__)
UNREADABLE = 60.0
"""Seconds between attempts to read a run that this release cannot read."""
TICK = 1.0
"""Seconds between checks of conditions that no event reports, such as a run that waits too long."""
RELEASE = 3.0
"""Maximum time in seconds for the release of the lease when the worker stops."""


class Worker:
    """Executes the runs of a federation until the process exits.

    Args:
        settings: the deployment's settings.
        stores, blobs: the federation's state.
        experiment: the experiment to submit if the federation has never had a run.
        observers: functions that are called at the end of every round.
        ranks: the processes that compute together; this process is rank 0.
    """

    def __init__(
        self,
        settings: Settings,
        stores: Stores,
        blobs: RunBlobs,
        experiment: Experiment | None,
        observers: list[Observer] | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        self._settings = settings
        self._stores = stores
        self._blobs = blobs
        self._experiment = experiment
        self._observers = observers or []
        self._ranks = ranks or Ranks()
        self._quota = DiskQuota(blobs, settings.disk_quota)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="round-engine")
        self.compute = compute_on(self._thread)
        """Runs a function on the round engine's thread."""
        self._fence: int | None = None
        self._news = asyncio.Event()
        """An event that is set whenever the queue of runs may have changed."""
        self._needed: tuple[str, int] | None = None
        """The run at the head of the queue, and the estimated size of its blobs in bytes."""
        self.round_engine: RoundEngine | None = None

    async def run(self) -> None:
        """Acquires the lease whenever it is free, and executes runs under it."""
        await self.compute(set_up_torch, self._settings)
        own = True
        while True:
            try:
                self._fence, own = await self._acquire(own), True
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._keep_lease(self._fence))
                    await migrate(self._stores, self._blobs, self._fence)
                    await self._submit_first_run()
                    await self._stores.runs.set_ready(self._fence)
                    housekeeping = Housekeeping(
                        self._stores, self._blobs, self._fence, self._settings.models_kept
                    )
                    tasks.create_task(self._attend(self._fence, housekeeping))
                    tasks.create_task(self._execute_runs(self._fence))
                    tasks.create_task(housekeeping.sweep_regularly())
                    tasks.create_task(housekeeping.remove_deleted_regularly())
            except* LeaseLost:
                # The new holder of the lease may have the same name as this worker. If two workers
                # of the same name could take over each other's lease, they would do so forever.
                # This worker therefore waits until the lease is free.
                own = False
                log.warning("the lease expired or passed to another worker; waiting for it")
            except* Unavailable as errors:
                # The message begins with what is unavailable: Redis, the blobs or the object store.
                log.warning("waiting for %s", errors.exceptions[0])
            self._fence = None
            await asyncio.sleep(min(1.0, self._settings.lease / 4))

    async def stop(self) -> None:
        """Releases the lease and stops the thread; call this method after `run` was cancelled.

        If Redis does not answer, the worker cannot release the lease, and the lease expires later.
        """
        if self._fence is not None:
            try:
                async with asyncio.timeout(RELEASE):
                    await self._stores.lease.release(self._settings.worker_id, self._fence)
            except (Unavailable, TimeoutError) as error:
                log.warning("the lease was not released: %s", str(error) or "no answer")
        self._thread.shutdown(wait=True)

    async def _acquire(self, own: bool) -> int:
        while True:
            settings = self._settings
            await self._stores.runs.schema()  # Raises an error if this version can't use the state.
            now = await self._stores.redis.time()
            fence = await self._stores.lease.acquire(settings.worker_id, settings.lease, now, own)
            if fence is not None:
                log.info("lease taken", extra={"fence": fence})
                return fence
            await asyncio.sleep(settings.lease / 5)

    async def _keep_lease(self, fence: int) -> None:
        settings = self._settings
        while True:
            await asyncio.sleep(settings.lease / 4)
            now = await self._stores.redis.time()
            await self._stores.lease.renew(settings.worker_id, fence, settings.lease, now)

    # -- the federation ------------------------------------------------------------------------

    async def _submit_first_run(self) -> None:
        """Submits the experiment from the settings if the federation has never had a run."""
        if self._experiment is None:
            return
        runs, digest = self._stores.runs, self._experiment.digest()
        if not await runs.submission_count():
            by = Attribution(OWNER, "the setting RAMPART_EXPERIMENT", time.time())
            await runs.submit(self._experiment, FOUNDING, by)
        elif any(info.experiment == digest for info in await runs.entries()):
            log.info("RAMPART_EXPERIMENT was already submitted", extra={"digest": digest})
        else:
            log.warning(
                "RAMPART_EXPERIMENT is ignored, because this federation already has runs; submit "
                "the experiment with `rampart run`",
                extra={"digest": digest},
            )

    async def _attend(self, fence: int, housekeeping: Housekeeping) -> None:
        """Handles the federation's events, and does housekeeping at regular intervals."""
        position = "0-0"
        while True:
            for event in await self._stores.events.read(position, TICK):
                position = event.position
                if event.type == "check":
                    await self._check(fence, event.request)
            await housekeeping.expire()
            await self._stores.events.trim()
            self._news.set()

    async def _check(self, fence: int, request: str) -> None:
        """Checks an experiment on behalf of the API, which has no torch, and stores the answer."""
        question = await self._stores.checks.question(request)
        if question is None:
            return
        try:
            tables = json.loads(question)
            folder = self._settings.start_models
            experiment = await self.compute(
                lambda: check_experiment(Experiment.from_tables(tables), folder)
            )
            estimate = await self.compute(needs, experiment, self._settings, self._ranks)
            self._quota.check(estimate.disk_bytes)
            answer: dict[str, object] = {
                "experiment": experiment.tables(),
                "estimate": estimate.model_dump(),
            }
        except RampartError as error:
            answer = {"refused": error.detail, "slug": error.slug}
        except Exception as error:  # A user's own package may raise any error.
            log.exception("an experiment could not be checked")
            answer = {"refused": f"{type(error).__name__}: {error}", "slug": "configuration-error"}
        await self._stores.checks.answer(fence, request, json.dumps(answer))

    # -- runs ----------------------------------------------------------------------------------

    async def _execute_runs(self, fence: int) -> None:
        """Executes the queued runs one after another."""
        while True:
            self._news.clear()
            run = await self._stores.runs.current() or await self._start_next(fence)
            if run is None:
                await self._news.wait()
            else:
                await self._execute(run, fence)
                # Free this run's memory: the next run may need blocks of other sizes, or start much
                # later.
                await self.compute(release_unused_memory)

    async def _start_next(self, fence: int) -> str | None:
        """Starts the run at the head of the queue; returns the run, or None if no run starts.

        If the disk quota does not yet have room for the run's blobs, the run stays at the head of
        the queue.
        """
        queue = await self._stores.runs.queue()
        if not queue:
            return None
        run = queue[0]
        try:
            if await self._exceeds_quota(run, fence):
                return None
            kept = self._settings.models_kept
            predictable = self._settings.predictable_draws
            await start_run(run, self._stores, self._blobs, self.compute, fence, kept, predictable)
        except (LeaseLost, Unavailable):
            raise
        except Exception as error:  # An error of one run must not stop the next run.
            reason = why(error)
            log.warning("run failed: %s", reason, exc_info=error, extra={"run": run})
            await self._stores.runs.drop(fence, run, time.time(), "failed", reason)
        else:
            log.info("run started", extra={"run": run})
        return await self._stores.runs.current()

    async def _exceeds_quota(self, run: str, fence: int) -> bool:
        """Returns whether the disk quota delays a run; if so, records the reason for operators."""
        state = self._stores.of_run(run).state
        if self._settings.disk_quota is None:
            # An earlier worker that had a quota may have recorded that the run waits.
            await state.hold(fence, "")
            return False
        if self._needed is None or self._needed[0] != run:
            experiment = await self._stores.runs.experiment(run)
            estimate = await self.compute(needs, experiment, self._settings, self._ranks)
            self._needed = run, estimate.disk_bytes
        self._quota.check(self._needed[1])
        shortage = await self._quota.shortage(self._needed[1])
        await state.hold(fence, shortage)
        return bool(shortage)

    async def _execute(self, run: str, fence: int) -> None:
        """Executes one run to its end.

        Raises:
            ConfigurationError: the run's global model is not among the blobs.
        """
        stores, blobs = self._stores.of_run(run), self._blobs.of_run(run)
        try:
            state = await stores.state.read()
        except ConfigurationError as error:
            log.error("the current run cannot be read; waiting: %s", error, extra={"run": run})
            await asyncio.sleep(UNREADABLE)
            return
        assert state is not None
        if state.server_seed == state.experiment.seed:
            log.warning("clients can predict the server's random draws", extra={"run": run})
        global_model = state.snapshot.global_model
        if not await self.compute(blobs.exists, global_model):
            raise ConfigurationError(
                f"run {run}: the global model {global_model} is not in the blob store "
                f"{self._settings.blobs}; restore the blobs that belong to this Redis"
            )
        records = stores.records(
            blobs,
            bound=int(self._settings.records_mib * 2**20),
            kept=self._settings.records_kept,
        )
        try:
            self.round_engine = await self.compute(self._round_engine, run, state)
            resources = RunResources(
                stores=stores,
                clients=self._stores.clients,
                blobs=blobs,
                records=records,
                round_engine=self.round_engine,
                compute=self.compute,
                experiment=state.experiment,
                fence=fence,
            )
            coordinator = Coordinator(
                resources, self._settings.offline_after, self._settings.models_kept
            )
            coordinator.publisher.observers += self._observers
            coordinator.publisher.warnings += [TAP_ENABLED] if self._settings.test_tap else []
            await coordinator.run()
        except (LeaseLost, Unavailable, RankFailed):
            raise
        except Exception as error:  # An error of one run must not stop the next run.
            log.exception("run failed", extra={"run": run})
            rest = await records.seal_rest()
            await stores.state.end(fence, time.time(), "failed", why(error), rest)
        finally:
            if self.round_engine is not None:
                # If this method is cancelled during a call, the engine's thread still completes the
                # call. The call needs the engine's other threads, so the engine is closed after the
                # call.
                self._thread.submit(self.round_engine.close)
            self.round_engine = None
        await self.compute(self._release)
        log.info("run ended", extra={"run": run})

    def _round_engine(self, run: str, state: RunDetails) -> RoundEngine:
        ranks, settings, blobs = self._ranks, self._settings, self._blobs.of_run(run)
        device, memory = ranks.device(settings.device), settings.pool_memory
        experiment, spec, seed = state.experiment, state.spec, state.server_seed
        with ranks.on_all_ranks("begin", run, experiment, spec, seed):
            return RoundEngine(experiment, spec, blobs, device, memory, ranks, seed)

    def _release(self) -> None:
        """Makes the other ranks free their memory after a run has ended."""
        with self._ranks.on_all_ranks("release"):
            pass


def why(error: Exception) -> str:
    """Explains to operators why a run failed."""
    text = error.detail if isinstance(error, RampartError) else f"{type(error).__name__}: {error}"
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    return f"{text}{notes}"[:2000]
