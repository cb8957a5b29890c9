"""Prints the `models_digest` of every shipped experiment on digits, to compare two versions.

    python -m benchmarks.digests [--rounds 3] > digests.json

A change that should not affect results, such as a renaming, must leave all digests equal. Seeds are
those of the experiments, and each run has one thread. Sweeps are not run.
"""

import argparse
import json
import sys
import tomllib

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.shipped import find, shipped
from rampart_fl.shared.runtime.threads import use
from rampart_fl.shared.simulation import Simulation


def digests(rounds: int) -> dict[str, str]:
    """The digest of the final models of each experiment after at most this number of rounds."""
    found = {}
    for name in sorted(shipped()):
        single = "sweep" not in tomllib.loads(find(name).read_text())
        if not name.startswith("digits-") or not single:
            continue
        experiment = Experiment.load(name)
        short = experiment.model_copy(update={"rounds": min(rounds, experiment.rounds)})
        simulation = Simulation.of(short)
        while not simulation.ended:
            simulation.step()
        found[name] = str(simulation.result().summary()["models_digest"])
        sys.stderr.write(f"{name}: {found[name][:12]}\n")
    return found


def main() -> None:
    """Prints the digests as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    use(1)
    sys.stdout.write(json.dumps(digests(parser.parse_args().rounds), indent=2) + "\n")


if __name__ == "__main__":
    main()
