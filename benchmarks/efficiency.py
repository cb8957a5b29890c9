"""The cost and the learning speed of each personalizer: the FedCAP paper's Table V on digits.

    python benchmarks/efficiency.py [--rounds 15] [--target 0.9] [METHOD ...]

There are no attackers. All clients train together in one process, so the column of clients' seconds
has the time of all clients in a round. Compare the seconds only within one run of this benchmark.
"""

import argparse

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.figures.final import TARGETS
from rampart_fl.shared.simulation import simulate

METHODS = {
    "fine_tune": {"personalizer": "fine_tune"},
    "fedrod": {"personalizer": "fedrod"},
    "fedfomo": {
        "personalizer": "fedfomo",
        "server": {"customizer": {"name": "fedfomo", "peers": 10}},
    },
    "ditto": {"personalizer": "ditto"},
    "fedcap": {
        "personalizer": {"name": "fedcap", "lambda": 0.1},
        "server": {
            "customizer": {"name": "fedcap", "alpha": 10, "phi": 0.1},
            "detectors": [{"name": "norm_bound", "threshold": 10}],
        },
    },
}
CLIENTS = ("probe", "train")
"""Steps of a round that clients perform; the server performs all other steps."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("methods", nargs="*", default=list(METHODS), metavar="METHOD")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--target", type=float, default=0.9, choices=TARGETS)
    given = parser.parse_args()
    base = {**Experiment.load("digits-fine-tune").tables(), "rounds": given.rounds}
    print(
        f"| method | rounds to {given.target:.0%} | accuracy after {given.rounds} "
        "| clients, s/round | server, s/round | MB/round |"
    )
    print("|---|---:|---:|---:|---:|---:|")
    for method in given.methods:
        summary = simulate(Experiment.from_tables({**base, **METHODS[method]})).summary()
        steps, sizes = summary["seconds_per_round"], summary["bytes_per_client"]
        ours = sum(seconds for step, seconds in steps.items() if step in CLIENTS)
        reached = summary["rounds_to_accuracy"][str(given.target)]
        print(
            f"| {method} | {reached or 'not reached'} | {summary['accuracy']:.1%} | {ours:.2f} "
            f"| {sum(steps.values()) - ours:.3f} "
            f"| {base['data']['clients'] * (sizes['down'] + sizes['up']) / 1e6:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
