"""The simulated buffered policy equals the sync policy if all must arrive, else a plain loop."""

from typing import Any

import pytest
import torch

from rampart_fl.shared.attacks.model.lie import largest_z
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.figures.client_metrics import sides
from rampart_fl.shared.learning.data.client_data import client_data
from rampart_fl.shared.learning.training.learner import Learner
from rampart_fl.shared.learning.training.local import train_round
from rampart_fl.shared.seeding import generator
from rampart_fl.shared.simulation import simulate

SMALL: dict[str, Any] = {
    "name": "small",
    "seed": 3,
    "rounds": 6,
    "policy": "buffered",
    "buffer": 3,
    "data": {"dataset": "digits", "clients": 7},
    "model": {"name": "mlp", "hidden": [8]},
    "training": {"epochs": 1, "batch_size": 50, "learning_rate": 0.1},
}
FEDCAP = {
    "personalizer": {"name": "fedcap", "lambda": 0.1},
    "server": {
        "detectors": ["robust_distance"],
        "customizer": {"name": "fedcap", "alpha": 10, "phi": 0.1},
    },
    "attackers": [{"count": 2, "attack": "model_replacement"}],
}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def experiment(**tables: Any) -> Experiment:
    return Experiment.from_tables({**SMALL, **tables})


def test_buffer_of_all_clients_equals_the_sync_policy() -> None:
    flow = simulate(experiment(**FEDCAP, buffer=1.0))
    barrier = simulate(experiment(**FEDCAP, policy="sync"))
    assert flow.summary()["models_digest"] == barrier.summary()["models_digest"]
    assert flow.figures == barrier.figures
    assert flow.figures["evicted"] == sides(experiment(**FEDCAP))[1]
    for mine, theirs in zip(flow.records, barrier.records, strict=True):
        assert set(mine.staleness.values()) == {0}
        same = {"timings": {}, "staleness": {}, "policy": "sync"}
        assert mine.model_copy(update=same) == theirs.model_copy(update=same)


def test_buffered_averaging_equals_a_plain_loop() -> None:
    """In the loop, each client has its own clock, and its newest model is weighted by age."""
    definition = experiment()
    result, learner, names = simulate(definition), Learner.of(definition), definition.client_names
    global_D, now = learner.initial_model(), 0.0
    data = [client_data(definition.data, slot, definition.seed) for slot in range(len(names))]
    begun: dict[str, tuple[int, float, torch.Tensor]] = {}
    trained: dict[str, tuple[int, torch.Tensor]] = {}
    for round_ in range(definition.rounds):
        for name in names:
            if name not in begun:
                draws = generator(definition.seed, "arrival", name, round_)
                span = torch.empty(1, dtype=torch.float64).exponential_(generator=draws).item()
                begun[name] = round_, now + span, global_D
        first = sorted(names, key=lambda name: begun[name][1])[:3]
        for name in first:
            ticket, now, start_D = begun.pop(name)
            k = names.index(name)
            own = train_round(
                learner, data[k], start_D, {}, seed=definition.seed, client=name, round_=ticket
            )
            trained[name] = ticket, start_D + own.update_D
        ages = {name: round_ - ticket for name, (ticket, _) in trained.items()}
        weights = {n: len(data[names.index(n)].y_train) / (1 + ages[n]) ** 0.5 for n in trained}
        total = sum(weights.values())
        global_D = sum(
            (weights[name] / total * model_D for name, (_, model_D) in trained.items()),
            torch.zeros_like(global_D),
        )
        record = result.records[round_]
        assert record.participants == sorted(trained)
        assert record.staleness == ages
        assert sorted(record.bytes_up) == sorted(first)
    assert max(ages.values()) > 1
    assert torch.allclose(result.global_D, global_D, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("attack", "explicit"),
    [
        ("model_replacement", {"name": "model_replacement", "scale": 7}),
        ("ipm", {"name": "ipm", "epsilon": 7}),
        ("lie", {"name": "lie", "z": largest_z(participants=7, attackers=3)}),
    ],
)
def test_attackers_count_all_clients_not_only_those_that_arrive_together(
    attack: str, explicit: dict[str, Any]
) -> None:
    """As over the network, the numbers n and m do not depend on the order of arrivals."""
    both = [
        simulate(experiment(buffer=5, attackers=[{"count": 3, "attack": one}]))
        for one in (attack, explicit)
    ]
    assert both[0].summary()["models_digest"] == both[1].summary()["models_digest"]


@pytest.mark.slow
def test_the_newest_upload_of_each_survivor_stays_in_the_pool() -> None:
    result = simulate(experiment(**FEDCAP, rounds=12))
    evicted = result.figures["evicted"]
    assert evicted and set(evicted) <= set(sides(experiment(**FEDCAP))[1])
    assert any(record.probed for record in result.records)
    for before, record in zip(result.records, result.records[1:], strict=False):
        out = {v.client for v in before.verdicts if v.decision != "accepted"}
        assert set(before.participants) - out <= set(record.participants)
    assert (
        simulate(experiment(**FEDCAP, rounds=12)).summary()["models_digest"]
        == (result.summary()["models_digest"])
    )
