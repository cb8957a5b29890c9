"""Samples per second of local training: many clients at once, and a plain loop over clients.

    python benchmarks/training.py [--networks fedcap_cifar lenet5 digits] [--threads 1 2]
        [--spread 100] [--json]

20 clients train one epoch per turn with SGD on batches of 10. The clients have 100 samples of
random numbers on average, because speed does not depend on the data. With a spread of 100, the
largest client has 100 times as many samples as the smallest. All ways to train take turns in one
process, so that other load on the machine affects all of them:

    plain      one torch module and one torch.optim.SGD per client, client after client
    rampart    `train` of `learning.training.local`, which the simulator and the agents use
    measured   rampart, with the loss of every model before and after its training
    fedcap     rampart with FedCAP's personalizer: it trains two models, so samples count twice

Each figure is the median over turns. The columns "processor" use the CPU time of this process
instead of the wall-clock time. With one thread, CPU time is the better measure on a machine with
other load. With several threads, CPU time measures the work of all threads, not the speed.
"""

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.learning.data.client_data import ClientData
from rampart_fl.shared.learning.network.models import models
from rampart_fl.shared.learning.network.stacked import Stacked
from rampart_fl.shared.learning.network.vector import flatten, load
from rampart_fl.shared.learning.training.cohort import Batches, Cohort
from rampart_fl.shared.learning.training.learner import Learner
from rampart_fl.shared.learning.training.local import train
from rampart_fl.shared.learning.training.personalizers import personalizers
from rampart_fl.shared.runtime import cpus

DIGITS = Experiment.load("digits-benign").model
NETWORKS: dict[str, tuple[dict[str, Any], tuple[int, ...], float]] = {
    "fedcap_cifar": ({"name": "fedcap_cifar"}, (3, 32, 32), 1.4),
    "lenet5": ({"name": "lenet5"}, (1, 28, 28), 3.0),
    "digits": (DIGITS, (1, 8, 8), 3.0),
    "alexnet": ({"name": "alexnet"}, (3, 32, 32), 1.0),
    "wide_resnet": ({"name": "wide_resnet"}, (3, 32, 32), 1.0),
    "logistic": ({"name": "logistic"}, (68,), 3.0),
}
"""For each network: the model, a sample's shape, and the target speed as a multiple of plain."""
CLASSES = 10


@dataclass(frozen=True)
class Speed:
    """Samples per second of one way to train one network, by wall-clock time and by CPU time."""

    network: str
    threads: int
    way: str
    wall: float
    processor: float


@dataclass(frozen=True, eq=False)
class Work:
    """One epoch of training of all clients, and the ways to run it."""

    module: nn.Module
    learner: Learner
    cohort: Cohort
    batches: Batches
    received_KD: Tensor

    @staticmethod
    def of(table: dict[str, Any], shape: tuple[int, ...], sizes: Sequence[int]) -> "Work":
        """Draws the data and the initial model."""
        draws = torch.Generator().manual_seed(1)

        def data(n: int) -> tuple[Tensor, Tensor]:
            return torch.rand(n, *shape, generator=draws), torch.randint(
                CLASSES, (n,), generator=draws
            )

        own = [ClientData(*data(size), *data(1), CLASSES) for size in sizes]
        module = models.parse(table).build(shape, CLASSES)
        training = Experiment.load("digits-benign").training.model_copy(update={"epochs": 1})
        learner = Learner(Stacked(module), personalizers.parse("none"), training)
        names = [str(k) for k in range(len(sizes))]
        batches = Batches.draw(sizes, names, training, 1, 0)
        return Work(
            module,
            learner,
            Cohort.of(own),
            batches,
            flatten(module).repeat(len(sizes), 1).contiguous(),
        )

    def plain(self) -> Tensor:
        """Trains one client after another with torch.optim.SGD."""
        after = []
        for k, model_D in enumerate(self.received_KD):
            module = load(self.module, model_D).train()
            optimizer = torch.optim.SGD(module.parameters(), lr=self.learner.training.learning_rate)
            for s in range(self.batches.steps_K[k]):
                index_B = self.batches.index_KSB[k, s][self.batches.weight_KSB[k, s] > 0]
                optimizer.zero_grad()
                logits = module(self.cohort.x_train_KN[k, index_B])
                loss = functional.cross_entropy(logits, self.cohort.y_train_KN[k, index_B])
                torch.autograd.backward(loss)
                optimizer.step()
            after.append(flatten(module))
        return torch.stack(after)

    def rampart(self, measure: bool = False) -> Tensor:
        """Trains all clients at once."""
        trained = train(self.learner, self.cohort, self.batches, self.received_KD, {}, measure)
        return self.received_KD + trained.update_KD

    def train_and_evaluate(self) -> Tensor:
        """Trains all clients at once, and evaluates the models before and after."""
        return self.rampart(measure=True)

    def fedcap(self) -> Tensor:
        """Trains all clients and their personal models at once."""
        member = personalizers.parse("fedcap")
        learner = Learner(self.learner.network, member, self.learner.training)
        state = member.init(self.received_KD)
        return train(
            learner, self.cohort, self.batches, self.received_KD, state, measure=False
        ).update_KD


def draw_sizes(clients: int, samples: int, spread: float) -> list[int]:
    """Numbers of samples with this mean, unordered; the largest is `spread` times the smallest.

    >>> sorted(draw_sizes(clients=3, samples=37, spread=100))
    [1, 10, 100]
    """
    shares = [spread ** (k / max(1, clients - 1)) for k in range(clients)]
    sizes = [max(1, round(share * clients * samples / sum(shares))) for share in shares]
    return random.Random(1).sample(sizes, clients)


def measure(name: str, threads: int, sizes: Sequence[int], turns: int) -> list[Speed]:
    """The speed of every way to train one network; the ways take turns."""
    torch.set_num_threads(threads)
    table, shape, _ = NETWORKS[name]
    torch.manual_seed(0)
    work = Work.of(table, shape, sizes)
    apart = (work.plain() - work.rampart()).abs().max().item()
    assert apart < 1e-3, f"{name}: the two ways differ by {apart}"
    ways: dict[str, tuple[Callable[[], Tensor], int]] = {
        "plain": (work.plain, 1),
        "rampart": (work.rampart, 1),
        "measured": (work.train_and_evaluate, 1),
        "fedcap": (work.fedcap, 2),
    }
    for run, _ in ways.values():
        run()
    times: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for _ in range(turns):
        for way, (run, passes) in ways.items():
            wall, processor = time.perf_counter(), time.process_time()
            run()
            count = sum(sizes) * passes
            times[way].append(
                (
                    count / (time.perf_counter() - wall),
                    count / (time.process_time() - processor),
                )
            )
    return [
        Speed(
            name, threads, way, *(statistics.median(column) for column in zip(*runs, strict=True))
        )
        for way, runs in times.items()
    ]


def table(speeds: list[Speed]) -> str:
    """The result as a Markdown table."""
    lines = [
        "| network | threads | way | samples/s | of plain | processor: samples/s | of plain "
        "| target |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for speed in speeds:
        plain = next(
            s
            for s in speeds
            if (s.network, s.threads, s.way) == (speed.network, speed.threads, "plain")
        )
        target = "" if speed.way in ("plain", "measured") else f"{NETWORKS[speed.network][2]:g}"
        lines.append(
            f"| {speed.network} | {speed.threads} | {speed.way} | {speed.wall:,.0f} | "
            f"{speed.wall / plain.wall:.2f} | {speed.processor:,.0f} | "
            f"{speed.processor / plain.processor:.2f} | {target} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Prints the table, or JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--networks", nargs="+", default=["fedcap_cifar", "lenet5", "digits"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, cpus.threads()])
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--spread", type=float, default=1)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    sizes, speeds = draw_sizes(given.clients, given.samples, given.spread), list[Speed]()
    for name in given.networks:
        for threads in sorted(set(given.threads)):
            speeds += measure(name, threads, sizes, given.turns)
    if given.json:
        sys.stdout.write(json.dumps([vars(speed) for speed in speeds]) + "\n")
    else:
        sys.stdout.write(table(speeds) + "\n")


if __name__ == "__main__":
    main()
