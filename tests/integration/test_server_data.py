"""Stages that need samples on the server, over HTTP: as in simulation, and after `kill -9`."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks import chaos
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.robust.rules.sdea import SDEA
from rampart_fl.shared.simulation import simulate
from tests.integration import in_process_federation

ALL = """
name = "server-data-test"
seed = 3
rounds = 3

[data]
dataset = "digits"
clients = 6
reserved = 120

[model]
name = "cnn"
channels = [2, 4]
hidden = 8

[training]
epochs = 1
learning_rate = 0.05

[server]
detectors = [
    { name = "selection", rule = { name = "sageflow", entropy = 2.5 } },
    { name = "selection", rule = { name = "sdea", epochs = 4 }, threshold = 0.1 },
]
rule = { name = "performance_aware", rule = "fltrust", max_gap = 2.0 }
root = { dataset = "digits", size = 60 }
public = { dataset = "digits", size = 60, augmentation = "strong" }

[phases.collecting]
count = { min = 1.0 }

[[attackers]]
count = 2
attack = { name = "model_replacement", from_round = 1 }
"""


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    return Experiment.parse(ALL)


def test_stages_with_server_data_over_http_match_the_simulator(
    experiment: Experiment, calm: chaos.Run
) -> None:
    expected = simulate(experiment).records
    assert len(calm.records) == len(expected) == 3
    for result, simulated in zip(calm.records, expected, strict=True):
        verdicts = [(v["client"], v["decision"], v["detector"]) for v in result["verdicts"]]
        assert verdicts == [(v.client, v.decision, v.detector) for v in simulated.verdicts]
        assert result["weights"] == pytest.approx(simulated.weights, rel=1e-2, abs=1e-4)
        columns = result["reports"][-1]["per_row"]
        assert columns["gap"] == pytest.approx(simulated.reports[-1].per_row["gap"], abs=1e-3)
    trusted = calm.records[0]["reports"][-1]["per_row"]["trust"]
    assert max(trusted.values()) > 0, "the server's own update trusts somebody"


@pytest.mark.timeout(400)
def test_killing_the_aggregator_does_not_change_the_result(
    experiment: Experiment, calm: chaos.Run, tmp_path: Path
) -> None:
    shaken = chaos.run(experiment, tmp_path, chaos.randomly(kills=2, longest=0.8, seed=1))
    assert shaken.kills == ["aggregator"] * 2
    assert chaos.difference(calm.outcome(), shaken.outcome()) is None


def test_api_stays_responsive_while_weights_are_learned(
    host: Callable[..., in_process_federation.Hosted], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end, learn = threading.Event(), threading.Event(), SDEA.learn

    def on_and_on(*args: Any) -> Any:
        begun.set()
        while not may_end.is_set():
            learn(*args)
        return learn(*args)

    monkeypatch.setattr(SDEA, "learn", on_and_on)
    server = {
        "rule": {"name": "sdea", "epochs": 1, "batch_size": 8},
        "public": {"dataset": "digits", "size": 80, "augmentation": "weak"},
    }
    data = {"dataset": "digits", "clients": 3, "reserved": 80}
    federation = host(in_process_federation.experiment(3, rounds=1, data=data, server=server))
    federation.scripted(["ada", "bob", "cleo"])
    try:
        assert begun.wait(60)
        for _ in range(20):
            assert federation.run.status().phase == "aggregating"
            for path in ("/healthz", "/readyz", "/metrics"):
                assert httpx.get(federation.url + path, timeout=30).status_code == 200
    finally:
        may_end.set()
    federation.wait()
    report = federation.record(0).reports[-1]
    assert report.stage == "sdea"
    assert set(report.per_row) == {"weight", "learned", "entropy"}
    assert set(report.per_row["entropy"]) == {"ada", "bob", "cleo"}
