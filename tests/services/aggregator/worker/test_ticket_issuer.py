"""The ticket issuer with a real Redis and a real round engine."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed

from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.aggregator.worker.open_round import OpenRoundData
from rampart_fl.services.aggregator.worker.ranks import Ranks
from rampart_fl.services.aggregator.worker.round_engine import RoundEngine
from rampart_fl.services.aggregator.worker.run_resources import RunResources
from rampart_fl.services.aggregator.worker.ticket_issuer import TicketIssuer
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.eviction import Standing
from rampart_fl.shared.protocol.messages import Receipt
from rampart_fl.shared.runtime.compute import compute_on
from tests.services.aggregator.conftest import BY
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


async def prepare(
    live_run: Any, ranks: Ranks, tmp_path: Path
) -> tuple[TicketIssuer, dict[str, Receipt]]:
    """An issuer after a round of an experiment that probes newcomers, and the round's uploads."""
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
    return TicketIssuer(resources), uploads


async def test_request_whose_probe_was_deleted_is_ignored(
    live_run: Any, ranks: Ranks, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """For example, an earlier worker answered it long ago, and a sweep deleted its probe."""
    issuer, uploads = await prepare(live_run, ranks, tmp_path)
    kept, deleted = uploads[CLIENTS[0]].digest, "e" * 64
    for request, digest in (("old", deleted), ("new", kept)):
        await live_run.run.customizations.request(request, "newcomer", digest)
    with caplog.at_level(logging.WARNING):
        for event in await live_run.run.events.read("0-0", 0.001):
            await issuer.answer_customize(event)
    assert await live_run.run.customizations.result("old") is None
    assert await live_run.run.customizations.result("new") is not None
    assert "its probe was deleted" in caplog.text


@pytest.mark.parametrize("policy", ["buffered"])
async def test_newcomer_reinstated_after_its_probe_gets_its_ticket_to_train_again(
    live_run: Any, ranks: Ranks, tmp_path: Path
) -> None:
    issuer, uploads = await prepare(live_run, ranks, tmp_path)
    run, opened, digest = live_run.run, OpenRoundData(), uploads[CLIENTS[0]].digest
    await live_run.join("new")
    await live_run.open(0, [])
    await issuer.grant("new", 0, opened)
    assert (await run.tickets.standing("new")).ticket.kind == "probe"
    await run.uploads.accept(live_run.receipt("new", 0, "probe", digest))
    *_, probed = await run.events.read("0-0", 0.001)
    await issuer.answer_probe(probed, 0, opened)
    trained = (await run.tickets.standing("new")).ticket
    assert trained.kind == "train"
    await run.evictions.evict("new", BY)
    await run.evictions.reinstate("new", BY)
    assert (await run.tickets.standing("new")).ticket is None
    await issuer.grant("new", 0, opened)
    assert (await run.tickets.standing("new")).ticket == trained
