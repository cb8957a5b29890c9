"""The ticket issuer with a real Redis and a real round engine."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed

from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.aggregator.worker.ranks import Ranks
from rampart_fl.services.aggregator.worker.round_engine import RoundEngine
from rampart_fl.services.aggregator.worker.run_resources import RunResources
from rampart_fl.services.aggregator.worker.ticket_issuer import TicketIssuer
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.eviction import Standing
from rampart_fl.shared.runtime.compute import compute_on
from tests.services.aggregator.worker.test_round_engine import CLIENTS, equal_uploads

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["alone", "ranks"])
def ranks(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ranks]:
    """A process without ranks; and rank 0, whose group has no other processes."""
    if request.param == "alone":
        yield Ranks()
        return
    store = distributed.FileStore(str(tmp_path / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield Ranks(0, 1, calls=distributed.group.WORLD)
    distributed.destroy_process_group()


async def test_request_whose_probe_was_deleted_is_ignored(
    live_run: Any, ranks: Ranks, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """For example, an earlier worker answered it long ago, and a sweep deleted its probe."""
    tables = {"name": "probed", "data": {"dataset": "digits"}, "model": "logistic"}
    experiment = Experiment.from_tables({**tables, "server": {"customizer": "fedcap"}})
    blobs = Blobs(tmp_path / "models")
    spec, first = RoundEngine.first_model(experiment, blobs)
    engine = RoundEngine(experiment, spec, blobs, torch.device("cpu"), ranks=ranks)
    engine.restore(first)
    engine.open_round(CLIENTS)
    uploads = equal_uploads(blobs, spec, first.global_model)
    engine.close_round(0, uploads, "0-0", (), Standing(len(CLIENTS), len(CLIENTS)))
    resources = RunResources(
        stores=live_run.run,
        clients=live_run.stores.clients,
        blobs=blobs,
        records=live_run.records,
        round_engine=engine,
        compute=compute_on(None),
        experiment=experiment,
        fence=live_run.fence,
    )
    kept, deleted = uploads[CLIENTS[0]].digest, "e" * 64
    for request, digest in (("old", deleted), ("new", kept)):
        await live_run.run.customizations.request(request, "newcomer", digest)
    with caplog.at_level(logging.WARNING):
        for event in await live_run.run.events.read("0-0", 0.001):
            await TicketIssuer(resources).answer_customize(event)
    assert await live_run.run.customizations.result("old") is None
    assert await live_run.run.customizations.result("new") is not None
    assert "its probe was deleted" in caplog.text
