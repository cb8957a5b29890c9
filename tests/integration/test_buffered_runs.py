"""Buffered federations as real processes: killed in mid-run, and the shipped experiment."""

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from rampart_fl.services.aggregator.state.stores import RunStores, Stores
from rampart_fl.services.console import testing
from rampart_fl.services.console.testing import RunningFederation
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.figures.final import final_figures
from rampart_fl.shared.protocol.messages import Ticket
from tests.integration.in_process_federation import FEDCAP, Scripted, experiment
from tests.integration.replay import check_replay

NAMES = ["ada", "bob", "cleo", "dan"]


class Unhurried(Scripted):
    """Takes some time for each update, so that a kill interrupts its work."""

    async def work(self, ticket: Ticket, model: bytes) -> bytes:
        await asyncio.sleep(0.2)
        return await super().work(ticket, model)


def state_of(running: RunningFederation) -> Callable[[Callable[[RunStores], Any]], Any]:
    """Runs actions on the state of the run."""
    url = f"redis://127.0.0.1:{running.local.redis_port}/0"

    def store(action: Callable[[RunStores], Any]) -> Any:
        async def act() -> Any:
            async with aclosing(
                Stores.connect(url, running.local.redis_password, "rampart")
            ) as stores:
                return await action(stores.of_run(running.run.id))

        return running.soon(act())

    return store


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningFederation]:
    """A federation of this test's own, because the test kills it."""
    definition = experiment(4, 30, policy="buffered", buffer=3, server=FEDCAP, seed=4)
    with testing.run(definition, tmp_path / "federation") as running:
        yield running


@pytest.mark.timeout(300)
def test_killing_the_aggregator_loses_no_update(running: RunningFederation, tmp_path: Path) -> None:
    definition, draws = running.experiment, random.Random(1)
    clients = {name: Unhurried(name) for name in NAMES}
    for name, client in clients.items():
        running.take_part(name, client)
    running.wait("collecting", 2)
    for _ in range(3):
        time.sleep(draws.uniform(0.0, 1.0))
        running.local.processes.kill("aggregator")
        running.local.start_aggregator()
        running.operator.ready()
    running.wait()
    again = check_replay(running, state_of(running), definition, clients, tmp_path)
    assert len(again.counted) == 30 * 3


@pytest.mark.timeout(300)
def test_shipped_buffered_experiment_runs_and_learns(
    rampart_run: Callable[[Experiment], RunningFederation],
) -> None:
    tables = Experiment.load("digits-buffered").tables()
    tables |= {"rounds": 5, "buffer": 4}
    tables["data"]["clients"], tables["attackers"][0]["count"] = 6, 2
    tables["model"] |= {"channels": [4, 8], "hidden": 16}
    tables["training"]["epochs"] = 1
    running = rampart_run(Experiment.from_tables(tables))
    running.start_clients()
    status = running.wait(patience=120)
    records = running.run.rounds()
    assert [(r.round, r.status, r.policy) for r in records] == [
        (number, "published", "buffered") for number in range(5)
    ]
    figures = final_figures(running.experiment, [r.metrics for r in records], status.evicted)
    assert figures["accuracy"] > 0.3
    assert running.run.evaluations()
