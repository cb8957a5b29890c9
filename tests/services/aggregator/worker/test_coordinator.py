"""The coordinator with a real Redis, when workers take over in the middle of a run."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import ReferenceType, ref

import pytest
import torch
from torch import Tensor

from rampart_fl.services.aggregator.state.audit_log import Attribution
from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.aggregator.state.client_facts import LastRequest
from rampart_fl.services.aggregator.state.redis_records import RunDetails
from rampart_fl.services.aggregator.state.stores import RunStores, Stores
from rampart_fl.services.aggregator.worker.coordinator import Coordinator
from rampart_fl.services.aggregator.worker.phases.events import (
    LeaseTaken,
    PhaseEvent,
    RoundRefused,
)
from rampart_fl.services.aggregator.worker.phases.state import PhaseState
from rampart_fl.services.aggregator.worker.round_engine import RoundEngine
from rampart_fl.services.aggregator.worker.run_resources import RunResources
from rampart_fl.shared.errors import PreconditionError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.protocol.stored_rounds import StoredRound

pytestmark = pytest.mark.anyio
BY = Attribution("ada", "a test", 0.0)


@dataclass
class FreshRun:
    """A run of one round in Redis, and its blobs."""

    stores: Stores
    run: RunStores
    folder: Path
    policy: str

    async def worker(self) -> Coordinator:
        """A worker that takes over; it starts the run if it has not started."""
        tables = {"name": "small", "data": {"dataset": "digits"}, "model": "logistic", "rounds": 1}
        experiment = Experiment.from_tables({**tables, "policy": self.policy})
        blobs = Blobs(self.folder)
        spec, snapshot = RoundEngine.first_model(experiment, blobs)
        fence = await self.stores.lease.acquire("worker", 60, 0.0)
        assert fence is not None
        await self.stores.runs.submit(experiment, "first", BY)
        await self.run.state.start(fence, experiment, spec, snapshot, 0.0)

        async def compute(function: Callable[..., Any], *args: Any) -> Any:
            return await asyncio.to_thread(function, *args)

        engine = RoundEngine(experiment, spec, blobs, torch.device("cpu"))
        records = self.run.records(blobs)
        resources = RunResources(
            stores=self.run,
            clients=self.stores.clients,
            blobs=blobs,
            records=records,
            round_engine=engine,
            compute=compute,
            experiment=experiment,
            fence=fence,
        )
        return Coordinator(resources, offline_after=60.0)

    async def state(self) -> RunDetails:
        """The state of the run in Redis."""
        state = await self.run.state.read()
        assert state is not None
        return state


@pytest.fixture(params=["sync", "buffered"])
def fresh_run(stores: Stores, tmp_path: Path, request: pytest.FixtureRequest) -> FreshRun:
    """A run that has not started yet."""
    return FreshRun(stores, stores.of_run("small-1"), tmp_path, request.param)


async def test_stopped_run_ends_although_each_worker_dies_after_one_phase(
    fresh_run: FreshRun,
) -> None:
    """Each phase is continued by a new worker, which finds the state in Redis."""
    first = await fresh_run.worker()
    state, _ = await first.take_over()
    ticket = first.ticket_issuer.first_ticket("ada", 0, None)
    await fresh_run.run.rounds.open(
        first.fence, 0, "collecting", 0.0, None, {"ada": ticket}, ["ada"]
    )
    await fresh_run.run.state.set_status("stopping", BY)
    phases = list[str]()
    while (phase := (await fresh_run.state()).phase) != "done":
        phases.append(phase)
        worker = await fresh_run.worker()
        state, event = await worker.take_over()
        assert (state.phase, state.status) == (phase, "stopping")
        while state.phase == phase and event is not None:
            state, event = await worker.advance(state, event)
        assert (await fresh_run.state()).phase == state.phase
    assert phases == ["collecting", "failed", "evaluating"]
    records = fresh_run.run.records(Blobs(fresh_run.folder))
    entry = await records.entry(0)
    assert entry is not None
    data = await records.record_json(entry)
    assert data is not None
    record = StoredRound.model_validate_json(data)
    assert (record.status, record.reason) == ("failed", "stopped by the operator")
    assert record.missing == ["ada"]


async def test_refused_round_frees_its_rows_before_the_last_round_is_restored(
    fresh_run: FreshRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = await fresh_run.worker()
    state, _ = await coordinator.take_over()
    rows, freed = list[ReferenceType[Tensor]](), list[bool]()

    def refuse(*given: object) -> None:
        block_ND = torch.zeros(2, 3)
        rows.append(ref(block_ND))
        raise PreconditionError("too few rows")

    def restore(snapshot: object) -> None:
        freed.append(rows[0]() is None)

    monkeypatch.setattr(coordinator.round_engine, "close_round", refuse)
    monkeypatch.setattr(coordinator.round_engine, "restore", restore)
    assert await coordinator.decide(state) == RoundRefused("too few rows")
    assert freed == [True]


async def in_open_round(fresh_run: FreshRun) -> tuple[Coordinator, PhaseState]:
    """A worker whose open round has selected ada, and the state of the round."""
    coordinator = await fresh_run.worker()
    await coordinator.take_over()
    ticket = coordinator.ticket_issuer.first_ticket("ada", 0, None)
    await fresh_run.run.rounds.open(
        coordinator.fence, 0, "collecting", 0.0, None, {"ada": ticket}, ["ada"]
    )
    state, _ = await coordinator.take_over()
    return coordinator, state


@pytest.mark.parametrize(
    ("remaining", "step", "phase"),
    [(60.0, 3600.0, "collecting"), (-1.0, -3600.0, "failed")],
    ids=["forward", "back"],
)
async def test_step_of_the_workers_clock_does_not_move_the_deadline_of_a_round(
    fresh_run: FreshRun, monkeypatch: pytest.MonkeyPatch, remaining: float, step: float, phase: str
) -> None:
    coordinator = await fresh_run.worker()
    await coordinator.take_over()
    now = await fresh_run.stores.redis.time()
    ticket = coordinator.ticket_issuer.first_ticket("ada", 0, None)
    await fresh_run.run.rounds.open(
        coordinator.fence, 0, "collecting", now - 2, now + remaining, {"ada": ticket}, ["ada"]
    )
    state, event = await coordinator.take_over()
    moved = time.time() + step
    monkeypatch.setattr(time, "time", lambda: moved)
    while event is not None and (
        state.stale or (state.phase == "collecting" and state.caught_up_at)
    ):
        state, event = await coordinator.advance(state, event)
    assert state.phase == phase


async def test_round_does_not_wait_for_a_client_that_is_away(fresh_run: FreshRun) -> None:
    coordinator, state = await in_open_round(fresh_run)
    await fresh_run.stores.clients.saw({"ada": LastRequest(0.0, "", away=True)})
    event: PhaseEvent | None = LeaseTaken()
    for _ in range(4):
        assert event is not None
        state, event = await coordinator.advance(state, event)
    assert (state.phase, state.absent) == ("failed", frozenset({"ada"}))


async def arguments_of_close_round(
    coordinator: Coordinator, state: PhaseState, monkeypatch: pytest.MonkeyPatch
) -> tuple[Any, ...]:
    """The arguments with which the coordinator asks the round engine for the round's outcome."""
    calls = list[tuple[Any, ...]]()

    def refuse(*given: Any) -> None:
        calls.append(given)
        raise PreconditionError("too few rows")

    monkeypatch.setattr(coordinator.round_engine, "close_round", refuse)
    await coordinator.decide(state)
    (given,) = calls
    return given


async def test_round_is_decided_with_the_selected_clients_even_if_some_sent_nothing(
    fresh_run: FreshRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A detector counts on it: clients cannot choose whether they are compared."""
    coordinator, state = await in_open_round(fresh_run)
    _, receipts, *_, selected, _, _ = await arguments_of_close_round(
        coordinator, state, monkeypatch
    )
    assert receipts == {} and selected == frozenset({"ada"})


async def test_failed_round_frees_its_rows(fresh_run: FreshRun) -> None:
    coordinator, state = await in_open_round(fresh_run)
    coordinator.round_engine.open_round(["ada"])
    await coordinator.publisher.fail(state, coordinator.opened, "too few updates")
    assert coordinator.round_engine.arrivals is None
    assert coordinator.round_engine.snapshot == (await fresh_run.state()).snapshot


async def test_buffered_decision_knows_the_models_from_which_clients_may_still_train(
    fresh_run: FreshRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator, state = await in_open_round(fresh_run)
    *_, in_use = await arguments_of_close_round(coordinator, state, monkeypatch)
    model = coordinator.publisher.snapshot.start("ada")
    assert in_use == ({model} if fresh_run.policy == "buffered" else ())


async def test_worker_that_takes_over_knows_which_updates_are_only_examined(
    fresh_run: FreshRun,
) -> None:
    coordinator = await fresh_run.worker()
    await coordinator.take_over()
    await fresh_run.run.rounds.open(
        coordinator.fence, 0, "collecting", 0.0, None, {}, ["ada", "bob"], ["bob"]
    )
    state, _ = await coordinator.take_over()
    assert (state.selected, state.examined) == ({"ada", "bob"}, {"bob"})


async def test_examined_clients_of_an_earlier_round_are_ignored(fresh_run: FreshRun) -> None:
    """A worker of an earlier version opens rounds without writing this field."""
    coordinator = await fresh_run.worker()
    await coordinator.take_over()
    await fresh_run.run.rounds.open(
        coordinator.fence, 0, "collecting", 0.0, None, {}, ["ada", "bob"], ["bob"]
    )
    state = fresh_run.run.rounds.keys.state
    await fresh_run.stores.redis.ask("hset", state, "round", 1)
    later, _ = await coordinator.take_over()
    assert (later.round, later.selected, later.examined) == (1, {"ada", "bob"}, set())


async def test_silent_clients_and_runs_that_only_observe_are_not_summoned(
    fresh_run: FreshRun,
) -> None:
    coordinator = await fresh_run.worker()
    await coordinator.take_over()
    engine = coordinator.round_engine
    assert engine.snapshot is not None
    awaited = {"awaited": ("ada", "bob"), "silent": ("bob",)}
    engine.snapshot = engine.snapshot.model_copy(update=awaited)
    assert (await coordinator.read_candidates(1)).awaited == {"ada"}
    await fresh_run.run.state.set_mode("observe", BY)
    assert (await coordinator.read_candidates(1)).awaited == set()
