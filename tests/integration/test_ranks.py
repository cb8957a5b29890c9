"""A worker whose ranks divide the coordinates gets the same result as a single process."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rampart_fl.shared.experiment import Experiment
from tests.integration.in_process_federation import Hold, Hosted, Scripted, experiment, until
from tests.integration.multi_process_federation import Parted, outcome
from tests.services.aggregator.object_server import ObjectServer, serving

NAMES = ["ada", "bob", "cleo", "dan", "eve"]
SERVER = {
    "rule": ["nnm", "centered_clipping"],
    "f": 1,
    "momentum": 0.5,
    "customizer": {"name": "fedcap", "alpha": 10, "phi": 0.1},
    "detectors": [{"name": "norm_bound", "threshold": 30}, "response", "challenge"],
}
LARGE = {"name": "mlp", "hidden": [2000]}
"""A model with 150,010 parameters, which are three shards."""


@pytest.fixture
def object_server() -> Iterator[ObjectServer]:
    """A server for the blobs of a federation."""
    with serving() as server:
        yield server


def restarted(running: Parted) -> None:
    """Starts the ranks again once the death of one has ended the others, and torchrun."""
    assert running.processes["worker"].wait(60) != 0
    running.start_ranks("worker", 2)


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("remote", [False, True])
def test_killing_ranks_during_a_round_does_not_change_the_result(
    host: Callable[..., Hosted],
    parted: Callable[[Experiment], Parted],
    object_server: ObjectServer,
    tmp_path: Path,
    remote: bool,
) -> None:
    definition = experiment(5, 4, fraction=0.8, seed=7, server=SERVER, model=LARGE)
    scales = {"eve": 10.0}
    calm = host(definition)
    calm.scripted(NAMES[:4])
    calm.take_part("eve", Scripted("eve", scale=10.0))
    calm.wait()

    running, hold = parted(definition), Hold(1)
    if remote:  # The api and the worker have separate caches, and rows are in files.
        running.settings |= object_server.environment
        running.settings["RAMPART_POOL_MEMORY"] = "1MiB"
        running.settings["RAMPART_BLOBS"] = "s3://bucket"
        running.settings["RAMPART_BLOB_CACHE"] = str(tmp_path / "api-cache")
    running.start("api", "api")
    running.settings["RAMPART_BLOB_CACHE"] = str(tmp_path / "worker-cache")
    running.start_ranks("worker", 2)
    running.operator.ready()
    for name in NAMES:
        running.join(name)
    for name in NAMES:
        client = Scripted(name, scale=scales.get(name, 0.01))
        client.hold = lambda ticket: hold(ticket)
        running.take_part(name, client)

    running.wait("collecting", 1)
    first, second = running.ranks("worker")
    second.kill()
    until(lambda: not first.is_running())
    restarted(running)

    hold.round = 2
    running.wait("collecting", 2)
    first, second = running.ranks("worker")
    second.suspend()  # Rank 0 then waits for it in the middle of a computation.
    hold.on = False
    until(lambda: len(running.run.status().received) == 4)
    first.kill()
    second.resume()
    until(lambda: not second.is_running())
    restarted(running)
    running.wait()

    assert outcome(running.run.rounds()) == outcome(calm.run.rounds())
    assert running.run.status().evicted == calm.run.status().evicted == ["eve"]
    assert bool(object_server.reads) == remote


def test_run_with_a_stage_that_ranks_cannot_divide_fails_with_the_reason(
    parted: Callable[[Experiment], Parted],
) -> None:
    running = parted(experiment(3, 1, server={"detectors": ["fedredefense"]}))
    running.start("api", "api")
    running.start_ranks("worker", 2)
    running.operator.ready()
    for name in NAMES[:3]:
        running.join(name)
    until(lambda: running.run.info().state == "failed")
    assert "'fedredefense' works on whole rows" in running.run.info().reason
    assert all(rank.is_running() for rank in running.ranks("worker")), "the next run may start"
