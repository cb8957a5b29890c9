"""Minutes that the simulator takes for one cell of the FedCAP paper's Table I on CIFAR-10.

    python benchmarks/simulation.py [--rounds 2] [--device cpu] [--threads N] [--experiment NAME]

A cell is 100 rounds of 20 clients with 400 training images each, 5 epochs in batches of 10, two
models per client. The benchmark times `--rounds` rounds after a warm-up round, and scales the time
to the whole cell. In the same process, it times `STEPS` steps of a plain loop, which trains one
client after another with torch.optim.SGD, and scales this time in the same way. If other processes
use the CPU, this process's CPU time is more meaningful than the wall-clock time.
"""

import argparse
import copy
import json
import os
import platform
import statistics
import sys
import time

import torch
from torch.nn import functional

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.learning.data.client_data import client_data
from rampart_fl.shared.learning.network.vector import build_module
from rampart_fl.shared.simulation import Simulation

STEPS = 60
"""Number of timed steps of the plain loop, after ten warm-up steps."""


def measure_rounds(experiment: Experiment, rounds: int, device: str) -> dict[str, float]:
    """Median seconds of a round: wall-clock time, CPU time, and wall-clock time of each step."""
    simulation = Simulation.of(experiment, device)
    simulation.step()
    wall, cpu = [], []
    for _ in range(rounds):
        began, computed = time.perf_counter(), time.process_time()
        simulation.step()
        wall.append(time.perf_counter() - began)
        cpu.append(time.process_time() - computed)
    steps = [record.timings for record in simulation.records[1:]]
    medians = {step: statistics.median(one[step] for one in steps) for step in steps[0]}
    return {"round": statistics.median(wall), "cpu": statistics.median(cpu), **medians}


def plain(experiment: Experiment, device: str) -> tuple[float, float]:
    """Wall-clock and CPU seconds per sample to train FedCAP's two models in a plain loop."""
    data, training = client_data(experiment.data, 0, experiment.seed), experiment.training
    pull, b = float(experiment.personalizer["lambda"]), training.batch_size
    model = build_module(experiment).to(device).train()
    own, sent = copy.deepcopy(model), [p.detach().clone() for p in model.parameters()]
    rate = training.learning_rate
    descents = [torch.optim.SGD(net.parameters(), lr=rate) for net in (model, own)]
    x, y = data.x_train.to(device), data.y_train.to(device)
    batches = [torch.arange(len(y))[at : at + b] for at in range(0, len(y) - b + 1, b)]
    began = computed = 0.0
    for step in range(10 + STEPS):
        if step == 10:
            began, computed = time.perf_counter(), time.process_time()
        at = batches[step % len(batches)]
        for net, descent in zip((own, model), reversed(descents), strict=True):
            descent.zero_grad()
            torch.autograd.backward(functional.cross_entropy(net(x[at]), y[at]))
            if net is own:
                for p, kept in zip(own.parameters(), sent, strict=True):
                    assert p.grad is not None
                    p.grad.add_(p.detach() - kept, alpha=pull)
            descent.step()
    if device != "cpu":
        torch.cuda.synchronize(device)
    passes = STEPS * b
    return (time.perf_counter() - began) / passes, (time.process_time() - computed) / passes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--experiment", default="fedcap-cifar10")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    experiment = Experiment.load(given.experiment)
    before = plain(experiment, given.device)
    seconds = measure_rounds(experiment, given.rounds, given.device)
    after = plain(experiment, given.device)
    sizes = [
        len(client_data(experiment.data, slot, experiment.seed).y_train)
        for slot in range(experiment.data.clients)
    ]
    drawn = experiment.fraction * experiment.data.clients
    passes = statistics.fmean(sizes) * drawn * experiment.training.epochs
    minutes = experiment.rounds / 60
    wall, cpu = (min(pair) * passes for pair in zip(before, after, strict=True))
    result = {
        "experiment": experiment.name,
        "device": given.device,
        "threads": given.threads,
        "load": os.getloadavg()[0],
        "rounds measured": given.rounds,
        "samples per round": round(passes),
        "minutes per cell": minutes * seconds["round"],
        "minutes per cell, plain loop that only trains": minutes * wall,
        "CPU minutes per cell": minutes * seconds["cpu"],
        "CPU minutes per cell, plain loop that only trains": minutes * cpu,
        "faster than the plain loop, by CPU": cpu / seconds["cpu"],
        "seconds per round": seconds,
    }
    if given.json:
        print(json.dumps(result))
        return
    print(f"{platform.processor() or platform.machine()}, torch {torch.__version__}")
    for name, value in result.items():
        if isinstance(value, dict):
            value = ", ".join(f"{step} {seconds:.3g}" for step, seconds in value.items())
        print(f"| {name} | {value:.3g} |" if isinstance(value, float) else f"| {name} | {value} |")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
