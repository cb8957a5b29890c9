"""The worker: it executes runs one after another, checks experiments, and tidies up."""

import asyncio
import gc
import json
import socket
import threading
import time
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from rampart_fl.services.aggregator.settings import Settings
from rampart_fl.services.aggregator.state.audit_log import Attribution
from rampart_fl.services.aggregator.state.run_blobs import RunBlobs
from rampart_fl.services.aggregator.state.stores import Stores
from rampart_fl.services.aggregator.worker import worker as worker_module
from rampart_fl.services.aggregator.worker.ranks import Ranks
from rampart_fl.services.aggregator.worker.worker import Worker
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.figures.estimate import estimate
from rampart_fl.shared.protocol.runs import RunInfo

pytestmark = pytest.mark.anyio
MIXING = {"a": {"a": 0.75, "b": 0.25}}
NOW = 1_000_000.0
BY = Attribution("ada", "a test", NOW)
SETTINGS = Settings(operator_token="operators-own-token", threads=1, worker_id="worker")


def experiment(**changes: Any) -> Experiment:
    """An experiment for which nobody trains: it ends when it is stopped."""
    tables = {"name": "idle", "data": {"dataset": "digits", "clients": 2}, "model": "logistic"}
    return Experiment.from_tables({**tables, **changes})


@asynccontextmanager
async def working(
    stores: Stores, blobs: RunBlobs, founding: Experiment | None = None, **settings: Any
) -> AsyncIterator[Worker]:
    """A worker for as long as the context lasts."""
    worker = Worker(SETTINGS.model_copy(update=settings), stores, blobs, founding)
    task = asyncio.create_task(worker.run())
    try:
        yield worker
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await worker.stop()


async def until(stores: Stores, run: str, *states: str) -> RunInfo:
    """Waits until a run is in one of these states."""
    while True:
        info = await stores.runs.entry(run)
        if info is not None and info.state in states:
            return info
        await asyncio.sleep(0.01)


@pytest.fixture
def blobs(tmp_path: Path) -> RunBlobs:
    """The blobs of all runs."""
    return RunBlobs(str(tmp_path / "blobs"), tmp_path)


async def test_runs_are_executed_one_after_another(stores: Stores, blobs: RunBlobs) -> None:
    names = [(await stores.runs.submit(experiment(seed=n), f"{n}", BY))[0].run for n in range(3)]
    async with working(stores, blobs):
        for number, run in enumerate(names):
            await until(stores, run, "running")
            assert await stores.runs.current() == run
            assert await stores.runs.queue() == names[number + 1 :]
            await stores.of_run(run).state.set_status("stopping", BY)
            info = await until(stores, run, "cancelled")
            assert info.reason == "a test"
    assert await stores.runs.current() is None


async def test_ended_run_is_freed_from_memory_before_the_next_run_starts(
    stores: Stores, blobs: RunBlobs
) -> None:
    names = [(await stores.runs.submit(experiment(seed=n), f"{n}", BY))[0].run for n in range(2)]
    gc.disable()
    try:
        async with working(stores, blobs) as worker:
            while worker.round_engine is None:
                await asyncio.sleep(0.01)
            engine = weakref.ref(worker.round_engine)
            await stores.of_run(names[0]).state.set_status("stopping", BY)
            await until(stores, names[1], "running")
            assert engine() is None
    finally:
        gc.enable()


async def test_next_worker_takes_over_the_current_run(stores: Stores, blobs: RunBlobs) -> None:
    info, _ = await stores.runs.submit(experiment(), "a", BY)
    await stores.runs.submit(experiment(), "b", BY)
    async with working(stores, blobs):
        await until(stores, info.run, "running")
    started = (await stores.runs.entry(info.run)).started_at  # type: ignore[union-attr]  # exists
    async with working(stores, blobs):
        await stores.of_run(info.run).state.set_status("stopping", BY)
        assert (await until(stores, info.run, "cancelled")).started_at == started


async def test_a_worker_waits_if_it_cannot_read_the_current_run(
    stores: Stores, blobs: RunBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example, after a rollback: a newer release can still continue the run."""
    monkeypatch.setattr(worker_module, "UNREADABLE", 0.05)
    info, _ = await stores.runs.submit(experiment(), "first", BY)
    state, redis = stores.keys.of_run(info.run).state, stores.redis.client
    async with working(stores, blobs):
        await until(stores, info.run, "running")
    original = await redis.hget(state, "experiment")
    newer = json.dumps({**json.loads(original), "key_of_a_newer_release": 1})
    await redis.hset(state, "experiment", newer)
    async with working(stores, blobs) as worker:
        await asyncio.sleep(0.3)
        assert worker.round_engine is None
        await redis.hset(state, "experiment", original)
        await stores.of_run(info.run).state.set_status("stopping", BY)
        await until(stores, info.run, "cancelled")


async def drawing(worker: Worker) -> int:
    """The seed of the server's draws in the run that the worker executes."""
    while worker.round_engine is None:
        await asyncio.sleep(0.01)
    return worker.round_engine.rounds.seed


async def test_every_worker_of_a_run_draws_from_the_secret_seed_of_the_run(
    stores: Stores, blobs: RunBlobs
) -> None:
    info, _ = await stores.runs.submit(experiment(seed=3), "a", BY)
    async with working(stores, blobs) as worker:
        secret = await drawing(worker)
    async with working(stores, blobs, predictable_draws=True) as worker:
        assert await drawing(worker) == secret != 3
        await stores.of_run(info.run).state.set_status("stopping", BY)
        await until(stores, info.run, "cancelled")


async def test_predictable_draws_follow_from_the_seed_of_the_experiment(
    stores: Stores, blobs: RunBlobs
) -> None:
    await stores.runs.submit(experiment(seed=3), "a", BY)
    async with working(stores, blobs, predictable_draws=True) as worker:
        assert await drawing(worker) == 3


async def test_a_run_that_must_not_bar_clients_cannot_be_switched_to_barring_them(
    stores: Stores, blobs: RunBlobs
) -> None:
    server = {"customizer": "flcert", "detectors": ["norm_bound"], "eviction": {"mode": "reject"}}
    info, _ = await stores.runs.submit(experiment(server=server), "certified", BY)
    state = stores.of_run(info.run).state
    async with working(stores, blobs):
        await until(stores, info.run, "running")
        for mode in ("quarantine", "evict"):
            answer, reason = await state.set_mode(mode, BY)
            assert answer == "conflict" and "share the bound on barred clients" in reason
        unchanged = await state.read()
        assert unchanged is not None and unchanged.mode is None
        assert await state.set_mode("observe", BY) == ("done", "observe")


async def test_a_run_that_cannot_start_fails_and_the_next_one_starts(
    stores: Stores, blobs: RunBlobs
) -> None:
    reasons = {
        "nothing-7": "there is no run 'nothing-7'",
        "idle-3": "run 'idle-3' has not started, so it has no model",
    }
    bad = []
    for number, run in enumerate(reasons):
        model = {"name": "logistic", "start": {"run": run}}
        bad.append((await stores.runs.submit(experiment(model=model), str(number), BY))[0])
    good, _ = await stores.runs.submit(experiment(), "b", BY)
    assert good.run == "idle-3"
    async with working(stores, blobs):
        for one, reason in zip(bad, reasons.values(), strict=True):
            assert (await until(stores, one.run, "failed")).reason == f"model.start: {reason}"
        await until(stores, good.run, "running")


async def test_run_can_start_with_the_model_of_another_run(stores: Stores, blobs: RunBlobs) -> None:
    first, _ = await stores.runs.submit(experiment(seed=5), "a", BY)
    start = {"name": "logistic", "start": {"run": first.run}}
    second, _ = await stores.runs.submit(experiment(seed=6, model=start), "b", BY)
    async with working(stores, blobs):
        await until(stores, first.run, "running")
        await stores.of_run(first.run).state.set_status("stopping", BY)
        await until(stores, second.run, "running")
    states = [await stores.of_run(one.run).state.read() for one in (first, second)]
    digests = [state.snapshot.global_model for state in states if state is not None]
    assert digests[0] == digests[1]
    assert blobs.of_run(second.run).exists(digests[1]), "the run has a copy of its own"


@pytest.mark.parametrize(("before", "expected"), [(0, ["idle-1"]), (1, ["other-1"])])
async def test_founding_experiment_is_submitted_only_if_no_run_exists(
    stores: Stores, blobs: RunBlobs, before: int, expected: list[str]
) -> None:
    if before:
        await stores.runs.submit(experiment(name="other"), "a", BY)
    async with working(stores, blobs, experiment()):
        while await stores.runs.schema() is None:
            await asyncio.sleep(0.01)
    assert [info.run for info in await stores.runs.entries()] == expected
    async with working(stores, blobs, experiment()):
        await until(stores, expected[0], "running")
    assert [info.run for info in await stores.runs.entries()] == expected


@pytest.mark.parametrize(
    ("tables", "refused"),
    [
        ({}, None),
        ({"personalizer": "nothing"}, "unknown personalizer 'nothing'"),
        ({"model": "lenet9"}, "unknown model 'lenet9'"),
    ],
)
async def test_the_worker_checks_experiments(
    stores: Stores, blobs: RunBlobs, tables: dict[str, Any], refused: str | None
) -> None:
    await stores.checks.ask("q", json.dumps({**experiment().tables(), **tables}))
    async with working(stores, blobs):
        while (raw := await stores.checks.result("q")) is None:
            await asyncio.sleep(0.01)
    answer = json.loads(raw)
    if refused is None:
        assert Experiment.from_tables(answer["experiment"]) == experiment()
        assert answer["estimate"] == estimate(experiment()).model_dump()
    else:
        assert refused in answer["refused"]


@pytest.mark.parametrize(
    ("detectors", "options", "ranks", "refused"),
    [
        ([], {"pool_memory": 1}, 1, None),
        (["fedredefense"], {"pool_memory": 1}, 1, "but RAMPART_POOL_MEMORY is 1 B"),
        ([], {"pool_memory": 1, "device": "cuda"}, 1, "a GPU holds all updates"),
        (["fedredefense"], {}, 2, "'fedredefense' works on whole rows"),
    ],
)
async def test_a_run_that_this_worker_cannot_run_is_refused_before_it_is_queued(
    stores: Stores,
    blobs: RunBlobs,
    detectors: list[str],
    options: dict[str, Any],
    ranks: int,
    refused: str | None,
) -> None:
    settings = SETTINGS.model_copy(update=options)
    worker = Worker(settings, stores, blobs, None, ranks=Ranks(size=ranks))
    fence = await stores.lease.acquire("w", 60, time.time(), True)
    assert fence is not None
    given = {**experiment().tables(), "server": {"detectors": detectors}}
    await stores.checks.ask("q", json.dumps(given))
    await worker._check(fence, "q")
    answer = json.loads(await stores.checks.result("q") or "")
    assert ("refused" in answer) == (refused is not None)
    if refused is None:
        limited = answer["estimate"]["disk_bytes"]
        assert limited > estimate(Experiment.from_tables(given)).disk_bytes
    else:
        assert refused in answer["refused"]


async def test_runs_that_wait_too_long_are_cancelled(stores: Stores, blobs: RunBlobs) -> None:
    soon = time.time() + 0.3
    joining, _ = await stores.runs.submit(experiment(), "a", BY, wait_until=soon)
    async with working(stores, blobs):
        await until(stores, joining.run, "running")
        info = await until(stores, joining.run, "cancelled")
        assert "too few clients had accepted" in info.reason
        current, _ = await stores.runs.submit(experiment(), "b", BY)
        await until(stores, current.run, "running")
        queued, _ = await stores.runs.submit(experiment(), "c", BY, wait_until=time.time())
        info = await until(stores, queued.run, "cancelled")
        assert "for other runs" in info.reason
        assert await stores.runs.current() == current.run


async def test_models_are_still_stored_if_the_lease_is_lost_while_a_round_is_decided(
    stores: Stores, blobs: RunBlobs
) -> None:
    await stores.runs.submit(experiment(), "first", BY)
    async with working(stores, blobs, lease=0.4) as worker:
        while (engine := worker.round_engine) is None:
            await asyncio.sleep(0.01)
        ended = threading.Event()

        def store() -> str:
            assert ended.wait(60)
            return engine._models.put(torch.zeros(engine.spec.dim))

        storing = asyncio.ensure_future(worker.compute(store))
        await stores.redis.client.delete(stores.keys.lease)
        while worker.round_engine is engine:
            await asyncio.sleep(0.01)
        ended.set()
        assert len(await storing) == 64


async def test_deleting_a_run_deletes_its_keys_and_blobs_and_nothing_else(
    stores: Stores, blobs: RunBlobs
) -> None:
    """Both runs have the same experiment, and so the same model."""
    first, _ = await stores.runs.submit(experiment(), "a", BY)
    second, _ = await stores.runs.submit(experiment(), "b", BY)
    async with working(stores, blobs):
        await until(stores, first.run, "running")
        await stores.of_run(first.run).state.set_status("stopping", BY)
        await until(stores, second.run, "running")
        assert await stores.runs.delete(first.run, BY) == "deleted"
        while await stores.runs.deleted_runs():
            await asyncio.sleep(0.01)
        state = await stores.of_run(second.run).state.read()
        assert state is not None
        assert blobs.of_run(second.run).exists(state.snapshot.global_model)
    assert await stores.redis.keys(stores.keys.of_run(first.run).prefix + "*") == []
    assert [path.name for path in blobs.folder.iterdir()] == [second.run]


async def test_the_worker_checks_experiments_while_it_removes_a_large_run(
    stores: Stores, tmp_path: Path
) -> None:
    removing, removed = threading.Event(), threading.Event()

    class SlowBlobs(RunBlobs):
        """An object store in which the removal of a run takes long."""

        def remove(self, run: str) -> None:
            removing.set()
            assert removed.wait(60)
            super().remove(run)

    (info, _) = await stores.runs.submit(experiment(), "first", BY)
    assert await stores.runs.delete(info.run, BY) == "deleted"
    async with working(stores, SlowBlobs(str(tmp_path / "blobs"), tmp_path)):
        while not removing.is_set():
            await asyncio.sleep(0.01)
        await stores.checks.ask("q", json.dumps(experiment().tables()))
        try:
            async with asyncio.timeout(30):
                while await stores.checks.result("q") is None:
                    await asyncio.sleep(0.01)
        finally:
            removed.set()
        while await stores.runs.deleted_runs():
            await asyncio.sleep(0.01)


async def test_a_worker_without_a_quota_ends_the_wait_for_an_earlier_quota(
    stores: Stores, blobs: RunBlobs
) -> None:
    (info, _) = await stores.runs.submit(experiment(), "first", BY)
    fence = await stores.lease.acquire("worker", 60, time.time())
    assert fence is not None
    state = stores.of_run(info.run).state
    await state.hold(fence, "disk: 1 MiB more than RAMPART_DISK_QUOTA")
    async with working(stores, blobs):
        await until(stores, info.run, "running")
        assert await state.wait_reason() == ""


@pytest.mark.parametrize("taken", [False, True])
async def test_a_worker_does_not_blame_another_worker_for_a_lease_that_expired(
    stores: Stores, blobs: RunBlobs, caplog: pytest.LogCaptureFixture, taken: bool
) -> None:
    """For example, the lease expires early if the clock of Redis steps forward."""
    (info, _) = await stores.runs.submit(experiment(), "first", BY)
    async with working(stores, blobs, lease=0.4):
        await until(stores, info.run, "running")
        if taken:
            await stores.redis.client.set(stores.keys.lease, "another", px=300)
        else:
            await stores.redis.client.delete(stores.keys.lease)
        while "waiting for it" not in caplog.text and "standing by" not in caplog.text:
            await asyncio.sleep(0.01)
        assert "the lease expired or passed to another worker" in caplog.text
        while await stores.lease.holder() != SETTINGS.worker_id:
            await asyncio.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("listening", [False, True])
async def test_a_worker_stops_without_an_error_while_redis_does_not_answer(
    blobs: RunBlobs, monkeypatch: pytest.MonkeyPatch, listening: bool
) -> None:
    monkeypatch.setattr(worker_module, "RELEASE", 0.2 if listening else 30.0)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        if listening:
            silent.listen()  # Connections are opened, but nothing answers commands.
        stores = Stores.connect(f"redis://127.0.0.1:{silent.getsockname()[1]}/0", None, "test")
        worker = Worker(SETTINGS, stores, blobs, None)
        worker._fence = 1
        await worker.stop()
        await stores.aclose()
    with pytest.raises(RuntimeError, match="after shutdown"):
        await worker.compute(print)
