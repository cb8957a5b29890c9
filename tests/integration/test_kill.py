"""Nothing that was acknowledged is lost, whatever is killed: real processes, real Redis."""

import random
import time
from pathlib import Path

import pytest

from benchmarks import chaos
from rampart_fl.services.console.launcher.local_federation import LocalFederation
from rampart_fl.shared.experiment import Experiment
from tests.integration.in_process_federation import QUICK

SMALL = """
name = "kill-test"
seed = 3
rounds = 8
fraction = 0.8

[data]
dataset = "digits"
partition = { name = "classes_per_client", classes = 2 }
clients = 6

[server]
detectors = [{ name = "norm_bound", threshold = 3.5 }]
customizer = { name = "fedcap", alpha = 10, phi = 0.1 }

[[attackers]]
count = 2
attack = { name = "model_replacement", from_round = 3 }
"""


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    return Experiment.parse(SMALL + QUICK)


def test_undisturbed_run_has_probes_and_evictions_to_lose(calm: chaos.Run) -> None:
    assert len(calm.records) == 8
    assert all(record["status"] == "published" for record in calm.records)
    assert any(record["probed"] for record in calm.records)
    assert calm.evicted
    assert len({record["models"]["global"] for record in calm.records}) == 8


@pytest.mark.timeout(400)
def test_killing_the_aggregator_at_random_points_changes_nothing(
    experiment: Experiment, calm: chaos.Run, tmp_path: Path
) -> None:
    shaken = chaos.run(experiment, tmp_path, chaos.randomly(kills=12, longest=0.3, seed=1))
    assert shaken.kills == ["aggregator"] * 12
    assert chaos.difference(calm.outcome(), shaken.outcome()) is None


@pytest.mark.long
@pytest.mark.timeout(400)
def test_killing_redis_and_clients_changes_nothing(
    experiment: Experiment, calm: chaos.Run, tmp_path: Path
) -> None:
    draws = random.Random(2)
    damages = [
        chaos.kill_redis,
        chaos.kill_clients_between_training_and_upload,
        chaos.kill_aggregator,
        chaos.kill_redis,
        chaos.kill_clients_between_training_and_upload,
    ]

    def disturb(federation: LocalFederation, result: chaos.Run) -> None:
        time.sleep(draws.uniform(0.0, 0.5))
        if damages and federation.run.status().phase not in {"joining", "done"}:
            damages.pop(0)(federation, result)

    shaken = chaos.run(experiment, tmp_path, disturb)
    assert len(shaken.kills) >= 4
    assert chaos.difference(calm.outcome(), shaken.outcome()) is None


@pytest.mark.long
@pytest.mark.timeout(400)
def test_killing_the_aggregator_does_not_change_quarantine_length(tmp_path: Path) -> None:
    eviction = '[server]\neviction = { mode = "quarantine", rounds = 1 }'
    experiment = Experiment.parse(SMALL.replace("[server]", eviction) + QUICK)
    calm = chaos.run(experiment, tmp_path / "calm")
    away = [record["quarantined"] for record in calm.records]
    assert any(away) and not away[-1], "somebody was out, and came back"
    shaken = chaos.run(experiment, tmp_path / "shaken", chaos.randomly(8, longest=0.8, seed=3))
    assert chaos.difference(calm.outcome(), shaken.outcome()) is None


@pytest.mark.long
@pytest.mark.timeout(400)
def test_killing_the_aggregator_changes_no_challenge(tmp_path: Path) -> None:
    """A model that was changed for one client is changed in the same way after a restart."""
    text = SMALL.replace("clients = 6", "clients = 8").replace(
        '{ name = "norm_bound", threshold = 3.5 }', '"response", "challenge"'
    )
    text = text.replace(
        '{ name = "model_replacement", from_round = 3 }', '{ name = "ipm", epsilon = 0.5 }'
    ).replace("count = 2", "count = 3")
    experiment = Experiment.parse(text + QUICK)
    calm = chaos.run(experiment, tmp_path / "calm")
    challenged = [
        sum(name.startswith("challenge:") for name in record["customized"])
        for record in calm.records
    ]
    assert sum(map(bool, challenged)) >= 3
    shaken = chaos.run(experiment, tmp_path / "shaken", chaos.randomly(8, longest=0.5, seed=5))
    # On a fast machine, the run ends before the last kills.
    assert len(shaken.kills) >= 4
    assert set(shaken.kills) == {"aggregator"}
    assert chaos.difference(calm.outcome(), shaken.outcome()) is None
