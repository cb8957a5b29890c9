"""The phases of a round that a worker takes over in the middle."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.aggregator.state.round_store import RoundStore
from rampart_fl.services.aggregator.worker.coordinator import Coordinator
from rampart_fl.services.aggregator.worker.round_engine import RoundEngine
from rampart_fl.shared.experiment import Experiment

pytestmark = pytest.mark.anyio


async def test_a_collection_goes_on_after_it_was_interrupted(
    store: RoundStore, tmp_path: Path
) -> None:
    """It asks where the federation stands, though nothing has happened since it last did."""
    tables = {"name": "small", "data": {"dataset": "digits"}, "model": "logistic"}
    experiment, blobs = Experiment.from_tables(tables), Blobs(tmp_path)
    spec, snapshot = RoundEngine.first_model(experiment, blobs)
    fence = await store.acquire("worker", 60, 0.0)
    assert fence is not None
    fields = {
        "experiment": experiment.model_dump_json(),
        "spec": spec.model_dump_json(),
        "policy": "sync",
        "status": "running",
        "phase": "joining",
        "round": "0",
        "snapshot": snapshot.model_dump_json(),
    }
    await store.found(fence, experiment.digest(), fields)
    round_engine = RoundEngine(experiment, spec, blobs, torch.device("cpu"))
    round_engine.restore(snapshot)

    async def compute(function: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.to_thread(function, *args)

    worker = Coordinator(store, blobs, round_engine, compute, experiment, fence, 60.0)
    ticket = worker.ticket_issuer.first_ticket("ada", 0, None)
    await store.open(fence, 0, "collecting", 0.0, None, {"ada": ticket}, ["ada"])
    federation = await worker.federation()
    await worker.enter(federation)
    assert worker.open is not None
    await worker.read_expected(worker.open)
    assert not worker.open.stale

    await store.set_status("stopping")
    await worker.collect(federation)
    (record,) = await store.records(0, 0)
    assert (record.status, record.reason) == ("failed", "stopped by the operator")
    assert record.missing == ["ada"]
