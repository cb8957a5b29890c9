"""One turn of a program of `studies.py`, which calls `main` with WAY, FOLDER and WARM-UP-ROUNDS.

Prints processor seconds of training and of evaluation per round as one line of JSON. Only the
program `rampart` imports the rest of this project, so that peers can run in a separate environment.
"""

import copy
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

Rounds = list[tuple[float, float]]
"""Processor seconds until the end of each round: in total, and of evaluation alone."""


class Study:
    """A protocol, read from the files that `studies.prepare` wrote."""

    def __init__(self, folder: Path) -> None:
        protocol = json.loads((folder / "protocol.json").read_text())
        self.folder = folder
        self.cohorts: list[list[int]] = protocol["cohorts"]
        self.batch: int = protocol["batch"]
        self.rate: float = protocol["learning_rate"]
        self.tables: dict[str, Any] = protocol["experiment"]
        parts = ("x_train", "y_train", "x_test", "y_test")
        self.parts = {part: np.load(folder / f"{part}.npy", mmap_mode="r") for part in parts}

    def module(self) -> nn.Module:
        """The first model."""
        # A whole module is pickled. The parent process of this benchmark has just written the file.
        module: nn.Module = torch.load(self.folder / "module.pt", weights_only=False)
        return module

    def data(self, client: int, part: str) -> tuple[Tensor, Tensor]:
        """A client's samples and labels, of `train` or `test`."""
        x, y = (torch.tensor(self.parts[f"{axis}_{part}"][client]) for axis in "xy")
        return x, y

    def descend(self, module: nn.Module, client: int, round_: int) -> None:
        """Trains a module for one epoch on a client's samples."""
        x, y = self.data(client, "train")
        draws = torch.Generator().manual_seed(round_ * 10_000 + client)
        optimizer = torch.optim.SGD(module.parameters(), lr=self.rate)
        for index in torch.randperm(len(y), generator=draws).split(self.batch):
            optimizer.zero_grad()
            torch.autograd.backward(functional.cross_entropy(module(x[index]), y[index]))
            optimizer.step()

    @torch.no_grad()
    def accuracy(self, module: nn.Module) -> float:
        """The share of all clients' test samples that a module classifies correctly."""
        clients = range(len(self.parts["y_test"]))
        hits = [
            (module(x).argmax(1) == y).double() for x, y in (self.data(k, "test") for k in clients)
        ]
        return torch.cat(hits).mean().item()


@cache
def opened(folder: Path) -> tuple[Study, nn.Module]:
    """A study and a module; each of Flower's actors creates them only once."""
    study = Study(folder)
    return study, study.module()


class Apart:
    """Counts the processor time of the calls of a function, such as evaluations."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            began = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.process_time() - began

        return counted


def plain(study: Study) -> tuple[Rounds, nn.Module]:
    """The plain loop: trains one client after another, then computes the mean of their models."""
    module, own, rounds, apart = study.module(), study.module(), Rounds(), Apart()

    @apart
    @torch.no_grad()
    def evaluate(client: int) -> None:
        for part in ("train", "test"):
            x, y = study.data(client, part)
            functional.cross_entropy(own(x), y).item()

    for number, cohort in enumerate(study.cohorts):
        total = {name: torch.zeros_like(p) for name, p in module.named_parameters()}
        for client in cohort:
            own.load_state_dict(module.state_dict())
            evaluate(client)
            study.descend(own, client, number)
            evaluate(client)
            for name, p in own.named_parameters():
                total[name] += p.detach()
        module.load_state_dict({name: p / len(cohort) for name, p in total.items()})
        rounds.append((time.process_time(), apart.seconds))
    return rounds, module


def rampart(study: Study) -> tuple[Rounds, nn.Module]:
    """Rampart's simulator, in which only `score_sums` and `training_loss` evaluate."""
    from rampart_fl.shared.experiment import Experiment
    from rampart_fl.shared.learning.network.vector import load
    from rampart_fl.shared.learning.training import local
    from rampart_fl.shared.simulation import Simulation

    apart, rounds = Apart(), Rounds()
    for name in ("score_sums", "training_loss"):
        setattr(local, name, apart(getattr(local, name)))
    simulation = Simulation.of(Experiment.from_tables(study.tables))
    while not simulation.ended:
        simulation.step()
        rounds.append((time.process_time(), apart.seconds))
    return rounds, load(study.module(), simulation.server.global_D)


def pfl(study: Study) -> tuple[Rounds, nn.Module]:
    """pfl's simulation, with its backend for one process."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
    from pfl.metrics import Metrics, Weighted
    from pfl.model.pytorch import PyTorchModel

    apart, rounds, module = Apart(), Rounds(), study.module()

    def loss(x: Tensor, y: Tensor, **_: Any) -> Tensor:
        return functional.cross_entropy(module(x), y)

    @torch.no_grad()
    def metrics(x: Tensor, y: Tensor, **_: Any) -> dict[str, Any]:
        return {"loss": Weighted(functional.cross_entropy(module(x), y).item() * len(y), len(y))}

    module.loss, module.metrics = loss, metrics

    class Clock(TrainingProcessCallback):
        def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Any]:
            rounds.append((time.process_time(), apart.seconds))
            return False, Metrics()

    drawn = (client for cohort in study.cohorts for client in cohort)
    clients = FederatedDataset(
        lambda client: Dataset(study.data(client, "train")), lambda: next(drawn)
    )
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    model.evaluate = apart(model.evaluate)
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=len(study.cohorts),
            evaluation_frequency=1,
            train_cohort_size=len(study.cohorts[0]),
            val_cohort_size=None,
        ),
        SimulatedBackend(clients, clients),
        model,
        NNTrainHyperParams(
            local_batch_size=study.batch, local_num_epochs=1, local_learning_rate=study.rate
        ),
        NNEvalHyperParams(local_batch_size=None),
        callbacks=[Clock()],
    )
    return rounds, module


def flower(study: Study) -> tuple[Rounds, nn.Module]:
    """Flower's simulation, which sends a message to an actor of its Ray cluster for each client."""
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    rounds, module, folder = Rounds(), study.module(), study.folder
    share = len(study.cohorts[0]) / len(study.parts["y_test"])
    last: dict[str, Any] = {}

    class Timed(FedAvg):
        evaluated = 0.0

        def aggregate_train(self, *args: Any) -> Any:
            result = super().aggregate_train(*args)
            self.trained = tree_seconds()
            return result

        def aggregate_evaluate(self, *args: Any) -> Any:
            result = super().aggregate_evaluate(*args)
            now = tree_seconds()
            self.evaluated += now - self.trained
            rounds.append((now, self.evaluated))
            return result

    client_app, server_app = ClientApp(), ServerApp()

    @client_app.train()
    def train(message: Message, context: Context) -> Message:
        (there, own), client = opened(folder), int(context.node_config["partition-id"])
        own.load_state_dict(message.content["arrays"].to_torch_state_dict())
        there.descend(own, client, message.content["config"]["server-round"])
        examples = len(there.parts["y_train"][client])
        content = RecordDict(
            {
                "arrays": ArrayRecord(own.state_dict()),
                "metrics": MetricRecord({"num-examples": examples}),
            }
        )
        return Message(content=content, reply_to=message)

    @client_app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        (there, own), client = opened(folder), int(context.node_config["partition-id"])
        own.load_state_dict(message.content["arrays"].to_torch_state_dict())
        x, y = there.data(client, "test")
        with torch.no_grad():
            loss = functional.cross_entropy(own(x), y).item()
        metrics = MetricRecord({"loss": loss, "num-examples": len(y)})
        return Message(content=RecordDict({"metrics": metrics}), reply_to=message)

    @server_app.main()
    def serve(grid: Grid, context: Context) -> None:
        everyone = len(study.parts["y_test"])
        strategy = Timed(
            fraction_train=share, fraction_evaluate=share, min_available_nodes=everyone
        )
        result = strategy.start(
            grid=grid,
            initial_arrays=ArrayRecord(module.state_dict()),
            num_rounds=len(study.cohorts),
        )
        last.update(result.arrays.to_torch_state_dict())

    run_simulation(
        server_app,
        client_app,
        num_supernodes=len(study.parts["y_test"]),
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    module.load_state_dict(last)
    return rounds, module


def tree_seconds() -> float:
    """Processor seconds of this process and of its descendants that still run."""
    import psutil

    def each() -> Iterator[float]:
        for process in (here := psutil.Process(), *here.children(recursive=True)):
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            yield times.user + times.system

    return sum(each())


WAYS = {"plain": plain, "rampart": rampart, "pfl": pfl, "flower": flower}
VERSIONS = {"pfl": ("pfl", "torch"), "flower": ("flwr", "ray", "torch")}


def main() -> None:
    """Runs the program, and prints its figures."""
    way, folder, warm = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    study = Study(folder)
    rounds, module = WAYS[way](study)
    count = len(rounds) - warm
    (whole, apart), (last, last_apart) = rounds[warm - 1], rounds[-1]
    evaluate = (last_apart - apart) / count
    figures = {
        "train": (last - whole) / count - evaluate,
        "evaluate": evaluate,
        "accuracy": study.accuracy(copy.deepcopy(module).eval()),
        "version": " ".join(f"{name} {version(name)}" for name in VERSIONS.get(way, ("torch",))),
    }
    sys.stdout.write(json.dumps(figures) + "\n")
