"""CPU milliseconds of one training step with each local objective, compared with plain training.

    python benchmarks/objectives.py [--networks digits lenet5] [--steps 6] [--turns 3]

20 clients train at once on one thread, with SGD and batches of 10 random samples. The objectives
take turns, so that other load on the machine affects all of them. Each figure is the median over
turns.
"""

import argparse
import statistics
import time
from typing import Any

import torch

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.learning.data.client_data import ClientData
from rampart_fl.shared.learning.training.cohort import Batches, Cohort
from rampart_fl.shared.learning.training.learner import Learner
from rampart_fl.shared.learning.training.local import train

NETWORKS: dict[str, tuple[dict[str, Any], str, tuple[int, ...]]] = {
    "digits": (Experiment.load("digits-benign").model, "digits", (1, 8, 8)),
    "mlp": ({"name": "mlp", "hidden": [64]}, "mnist", (1, 28, 28)),
    "lenet5": ({"name": "lenet5"}, "mnist", (1, 28, 28)),
}
"""For each network: the model, the data set whose classes it predicts, and a sample's shape."""
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "fedprox": {"objective": "fedprox"},
    "hmsdfl": {"objective": "hmsdfl"},
    "hmsdfl, 3 projections": {"objective": {"name": "hmsdfl", "n_projections": 3}},
    "msdfl, batch_sum": {"objective": {"name": "msdfl", "form": "batch_sum"}},
    "msdfl, per_sample": {"objective": "msdfl"},
    "privacy": {"privacy": {}},
}
"""Settings of `[training]` that are measured, keyed by their name in the table."""
CLIENTS, BATCH = 20, 10


def learner(network: str, way: str) -> Learner:
    """A learner of one network with one objective."""
    model, dataset, _ = NETWORKS[network]
    tables: dict[str, Any] = {
        "name": "cost",
        "data": {"dataset": dataset},
        "model": model,
        "training": {"epochs": 1, "batch_size": BATCH, **WAYS[way]},
    }
    return Learner.of(Experiment.from_tables(tables))


def seconds(one: Learner, shape: tuple[int, ...], steps: int) -> float:
    """CPU seconds of one training step of all clients at once."""
    draws = torch.Generator().manual_seed(0)

    def sample(n: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.rand(n, *shape, generator=draws)
        return x, torch.randint(10, (n,), generator=draws)

    clients = [ClientData(*sample(BATCH * steps), *sample(1), 10) for _ in range(CLIENTS)]
    cohort, names = Cohort.of(clients), [str(k) for k in range(CLIENTS)]
    batches = Batches.draw(cohort.train_K, names, one.training, seed=0, round_=0)
    received_KD = one.initial_model().repeat(CLIENTS, 1)
    began = time.process_time()
    train(one, cohort, batches, received_KD, one.first_states(received_KD), measure=False)
    return (time.process_time() - began) / batches.steps


def main() -> None:
    """Prints a table of milliseconds and of ratios to plain training."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print("| network | parameters | objective | ms a step | times plain |\n|---|--:|---|--:|--:|")
    for network in given.networks:
        learners = {way: learner(network, way) for way in WAYS}
        shape, times_by_way = NETWORKS[network][2], {way: list[float]() for way in WAYS}
        for one in learners.values():
            seconds(one, shape, 1)
        for _ in range(given.turns):
            for way, one in learners.items():
                times_by_way[way].append(seconds(one, shape, given.steps))
        plain = statistics.median(times_by_way["plain"])
        for way, times in times_by_way.items():
            middle = statistics.median(times)
            dim = learners[way].spec.dim
            print(f"| {network} | {dim:,} | {way} | {middle * 1e3:.1f} | {middle / plain:.1f} |")


if __name__ == "__main__":
    main()
