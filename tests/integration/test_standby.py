"""One federation over several processes: an api, a worker, and a standby."""

import time
from collections.abc import Callable

import httpx
import pytest

from rampart_fl.shared.experiment import Experiment
from tests.integration.in_process_federation import FEDCAP, Hold, Hosted, Scripted, experiment
from tests.integration.multi_process_federation import Parted, outcome

NAMES = ["ada", "bob", "cleo", "dan"]
SERVER = {**FEDCAP, "detectors": [{"name": "norm_bound", "threshold": 5}]}


@pytest.mark.timeout(300)
def test_standby_takes_over_and_reaches_the_same_result(
    host: Callable[..., Hosted], parted: Callable[[Experiment], Parted]
) -> None:
    definition = experiment(5, 6, fraction=0.8, seed=7, server=SERVER)
    names, scales = [*NAMES, "eve"], {"eve": 10.0}
    calm = host(definition)
    calm.scripted(NAMES)
    calm.take_part("eve", Scripted("eve", scale=10.0))
    calm.wait()

    running, holds = parted(definition), [Hold(2), Hold(4)]
    running.start("api", "api")
    running.start("worker", "one")
    running.hand_over("one")
    running.start("worker", "two")
    running.operator.ready()
    for name in names:
        running.join(name)
    for name in names:
        client = Scripted(name, scale=scales.get(name, 0.01))
        client.hold = lambda ticket: any(hold(ticket) for hold in holds)
        running.take_part(name, client)

    # In the middle of a round, the worker that decides is killed.
    running.wait("collecting", 2)
    running.processes.kill("one")
    running.hand_over("two")
    holds[0].on = False
    # A worker that drains, as at a platform's SIGTERM, releases its lease immediately.
    running.start("worker", "one")
    running.wait("collecting", 4)
    while not answers(running.ports["one"]):
        running.wait("collecting", 4)
    running.processes.stop("two")
    running.hand_over("one")
    holds[1].on = False
    running.wait()

    assert outcome(running.run.rounds()) == outcome(calm.run.rounds())
    assert running.run.status().evicted == calm.run.status().evicted == ["eve"]
    # A worker serves only the operational routes; only an api admits clients.
    worker = f"http://127.0.0.1:{running.ports['one']}"
    assert httpx.get(f"{worker}/healthz").status_code == 200
    assert httpx.get(f"{worker}/metrics").status_code == 200
    assert httpx.get(f"{worker}/v1/ticket").status_code == 404


def answers(port: int) -> bool:
    """Whether a process is running."""
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=5).status_code == 200
    except httpx.TransportError:
        time.sleep(0.1)
        return False
