"""Prints the `models_digest` of every shipped experiment on digits, to compare two versions.

    python -m benchmarks.digests [--rounds 3] > digests.json

A change that should not affect results, such as a renaming, must leave all digests equal. Seeds are
those of the experiments, and each run has one thread. Of a sweep, only the first run is compared.
"""

import argparse
import json
import sys

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.shipped import shipped
from rampart_fl.shared.experiment.sweep import Sweep
from rampart_fl.shared.runtime.threads import use
from rampart_fl.shared.simulation import Simulation
from rampart_fl.shared.validation import validate


def experiments() -> dict[str, Experiment]:
    """The shipped experiments on digits, keyed by name; a sweep gives the first run of its grid."""
    by_name = {}
    for name in sorted(shipped()):
        sweep = Sweep.load(name)
        experiment = sweep.base if sweep else Experiment.load(name)
        if experiment.data.dataset["name"] == "digits":
            by_name[name] = sweep.points(validate)[0].runs[0] if sweep else experiment
    return by_name


def digests(rounds: int) -> dict[str, str]:
    """The digest of the final models of each experiment after at most this number of rounds."""
    by_name = {}
    for name, experiment in experiments().items():
        short = experiment.model_copy(update={"rounds": min(rounds, experiment.rounds)})
        simulation = Simulation.of(short)
        while not simulation.ended:
            simulation.step()
        by_name[name] = str(simulation.result().summary()["models_digest"])
        sys.stderr.write(f"{name}: {by_name[name][:12]}\n")
    return by_name


def main() -> None:
    """Prints the digests as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    use(1)
    sys.stdout.write(json.dumps(digests(parser.parse_args().rounds), indent=2) + "\n")


if __name__ == "__main__":
    main()
