"""Processor seconds of a simulated round: Rampart, pfl, Flower's simulation and a plain loop.

    make bench-peers                      once: installs the peers in a separate environment
    python benchmarks/studies.py          both protocols, every program in three turns
    python benchmarks/studies.py --protocols mnist --rounds 10 --turns 1

All programs (`--ways`) train the same model on the same samples with one thread: one epoch of SGD
on every selected client, then the mean of the clients' models. Each turn of a program is a separate
process. The programs take turns, so that other load on the machine affects all of them:

    plain      one module and one torch.optim.SGD, client after client
    rampart    the simulator, as `rampart simulate` runs it
    pfl        SimulatedBackend and FederatedAveraging
    flower     run_simulation with FedAvg; all processes of its Ray cluster count

The time of evaluation is counted separately, because the programs evaluate on different samples.
The plain loop and rampart evaluate on each client's test and training samples, before and after
training. pfl evaluates on each client's training samples, before and after training. Flower
evaluates on each client's test samples, after aggregation.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.selection import select
from rampart_fl.shared.learning.data.client_data import client_data
from rampart_fl.shared.learning.network.vector import build_module
from rampart_fl.shared.runtime import cpus

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / ".bench-peers"
WAYS = ("plain", "rampart", "pfl", "flower")
WARM = 2
"""Number of warm-up rounds before the measured rounds."""
PROTOCOLS: dict[str, dict[str, Any]] = {
    "mnist": {
        "rounds": 100,
        "fraction": 0.01,
        "data": {"dataset": "mnist", "clients": 1000, "samples": 70},
        "model": "logistic",
        "training": {"epochs": 1, "batch_size": 10, "learning_rate": 0.03},
    },
    "cifar10": {
        "rounds": 10,
        "fraction": 0.05,
        "data": {"dataset": "cifar10", "clients": 1000, "samples": 60, "test_fraction": 1 / 6},
        "model": "fedcap_cifar",
        "training": {"epochs": 1, "batch_size": 10, "learning_rate": 0.1},
    },
}
TITLES = {
    "mnist": "MNIST, logistic regression, 1,000 clients, 10 a round",
    "cifar10": "CIFAR-10, FedCAP's network, 1,000 clients of 50 samples, 50 a round",
}


def main() -> None:
    """Measures and prints the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--protocols", nargs="+", default=list(PROTOCOLS), choices=PROTOCOLS)
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    parser.add_argument("--rounds", type=int, help="measured rounds, instead of the protocol's")
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    if not (PEERS / ".ready").exists() and {"pfl", "flower"} & {*given.ways}:
        parser.error("the peers are missing: run make bench-peers, or leave them out of --ways")
    sections = []
    for name in given.protocols:
        tables = PROTOCOLS[name]
        rounds = given.rounds or tables["rounds"]
        experiment = Experiment.from_tables({**tables, "name": name, "rounds": rounds + WARM})
        with tempfile.TemporaryDirectory() as folder:
            prepare(experiment, Path(folder))
            turns = [
                {way: measure(way, Path(folder)) for way in given.ways} for _ in range(given.turns)
            ]
        sections.append(section(name, rounds, turns))
    sys.stdout.write(report(sections))


def prepare(experiment: Experiment, folder: Path) -> None:
    """Writes the input of all programs: samples (clients, samples, ...), first model, cohorts."""
    names = experiment.client_names
    data = [client_data(experiment.data, slot, experiment.seed) for slot in range(len(names))]
    for part in ("x_train", "y_train", "x_test", "y_test"):
        np.save(folder / part, np.stack([getattr(one, part).numpy() for one in data]))
    torch.save(build_module(experiment), folder / "module.pt")
    cohorts = [
        [names.index(name) for name in select(experiment.seed, number, names, experiment.fraction)]
        for number in range(experiment.rounds)
    ]
    protocol = {
        "cohorts": cohorts,
        "batch": experiment.training.batch_size,
        "learning_rate": experiment.training.learning_rate,
        "experiment": experiment.tables(),
    }
    (folder / "protocol.json").write_text(json.dumps(protocol))


def measure(way: str, folder: Path) -> dict[str, Any]:
    """One turn of a program, in a separate process."""
    python = PEERS / "bin/python" if way in ("pfl", "flower") else Path(sys.executable)
    # Flower's actors can import the cell only if it is a module, not the main program.
    start = "from benchmarks.studies_cell import main; main()"
    command = [str(python), "-c", start, way, str(folder), str(WARM)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "PYTHONWARNINGS": "ignore",
        "OMP_NUM_THREADS": "1",
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    print(f"measuring {way} ...", file=sys.stderr, flush=True)
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def section(name: str, rounds: int, turns: list[dict[str, dict[str, Any]]]) -> str:
    """The table of one protocol; every figure is the median over turns."""
    lines = [
        f"## {TITLES[name]}",
        "",
        f"{rounds} measured rounds after {WARM}; {len(turns)} turn(s). Accuracy is that of the "
        "last global model on all clients' test samples.",
        "",
        "| way | training, s a round | of plain | evaluation, s a round | accuracy |",
        "|---|---:|---:|---:|---:|",
    ]
    median = {
        way: {key: statistics.median(turn[way][key] for turn in turns) for key in FIGURES}
        for way in turns[0]
    }
    for way, one in median.items():
        of = f"{one['train'] / median['plain']['train']:.2f}" if "plain" in median else ""
        lines.append(
            f"| {way} | {one['train']:.4g} | {of} | {one['evaluate']:.4g} | {one['accuracy']:.1%} |"
        )
    versions = {way: turn["version"] for way, turn in turns[0].items()}
    lines += ["", ", ".join(f"{way}: {version}" for way, version in versions.items())]
    return "\n".join(lines)


FIGURES = ("train", "evaluate", "accuracy")


def report(sections: list[str]) -> str:
    """The tables, below a line about the machine."""
    machine = f"{platform.machine()}, {cpus.available():g} cores, torch {torch.__version__}"
    about = f"{machine}, one thread; load at the end {os.getloadavg()[0]:.1f}. `{command()}`"
    return "\n\n".join(["# Studies, compared with other libraries", about, *sections]) + "\n"


def command() -> str:
    """The command that was given."""
    return " ".join(["python benchmarks/studies.py", *sys.argv[1:]])


if __name__ == "__main__":
    main()
