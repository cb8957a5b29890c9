"""Runs the shipped experiment digits-robust over HTTP with each of several robust pipelines.

    python benchmarks/pipelines.py [--rounds 12] [PIPELINE ...]

A pipeline is a rule, or pre-aggregators and a rule joined by +. The benchmark runs the real
services and clients, not the simulator.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from rampart_fl.services.console.launcher.up import up
from rampart_fl.shared.experiment import Experiment

PIPELINES = (
    "weighted_mean",
    "median",
    "trimmed_mean",
    "multi_krum",
    "geometric_median",
    "centered_clipping",
    "nnm+trimmed_mean",
    "nnm+krum",
    "dnc",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pipelines", nargs="*", default=PIPELINES)
    parser.add_argument("--rounds", type=int, default=12)
    given = parser.parse_args()
    tables = Experiment.load("digits-robust").tables()
    print("| pipeline | accuracy of the global model | s/round |")
    print("|---|---|---|")
    for pipeline in given.pipelines:
        server = {**tables["server"], "rule": [{"name": name} for name in pipeline.split("+")]}
        experiment = Experiment.from_tables({**tables, "server": server, "rounds": given.rounds})
        with tempfile.TemporaryDirectory() as folder:
            outcome = up(experiment, Path(folder))
        accuracy = outcome.summary["accuracy_customized"]
        first, last = outcome.records[0], outcome.records[-1]
        pace = (last.closed_at - first.closed_at) / (len(outcome.records) - 1)
        print(f"| {pipeline} | {100 * accuracy:.1f} % | {pace:.2f} |", flush=True)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
