"""One rank of `test_follower.py`; torchrun starts it with the folder of the blobs.

With a second argument, the experiments that can keep their pools in files do so.

Rank 0 decides the rounds of several experiments, and the other ranks follow it.
"""

import sys
from pathlib import Path
from typing import Any

import torch

from rampart_fl.services.aggregator.settings import Settings
from rampart_fl.services.aggregator.state.run_blobs import RunBlobs
from rampart_fl.services.aggregator.worker.follower import follow
from rampart_fl.services.aggregator.worker.ranks import Ranks
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.robust import shards, view
from tests.services.aggregator.worker.test_round_engine import models

GRAIN = 64
HELD = ("flcert", "clustered")
"""Experiments that cannot keep their pools in files."""
OWN = {"dataset": "digits", "size": 40}
SERVERS: dict[str, dict[str, Any]] = {
    "fedcap": {"rule": ["nnm", "trimmed_mean"], "customizer": "fedcap", "test": OWN},
    "raw": {"rule": "median", "customizer": "fedcap", "calibrate": False},
    "layer": {"rule": "krum", "customizer": {"name": "fedcap", "similarity": "last_layer"}},
    "fedfomo": {"rule": "fltrust", "customizer": "fedfomo", "root": OWN},
    "flcert": {"rule": "median", "customizer": {"name": "flcert", "groups": 2, "rule": "rfa"}},
    "clustered": {"rule": "centered_clipping", "customizer": "clustered", "momentum": 0.5},
}


def experiments() -> dict[str, Experiment]:
    """Experiments whose models have a few shards of 64 parameters, by the name of their run."""
    data = {"dataset": "digits", "clients": 7, "reserved": 40}
    base = {"data": data, "model": "logistic"}
    table = {}
    for name, server in SERVERS.items():
        detectors = ["norm_bound"] if name == "flcert" else ["response", "challenge"]
        bounded = {"bounded": name != "flcert"}
        given = {"f": 1, "detectors": detectors, "eviction": bounded, **server}
        table[name] = Experiment.from_tables({"name": name, **base, "server": given})
    return table


def shrink() -> None:
    """Makes shards and windows of a few parameters."""
    shards.GRAIN, view.WINDOW = GRAIN, 1


def main() -> None:
    """Decides rounds as one rank."""
    shrink()
    folder, ranks = Path(sys.argv[1]), Ranks.connect()
    memory = 1000 if len(sys.argv) > 2 else None
    settings = Settings(role="worker", operator_token="operators-own-token", pool_memory=memory)
    if ranks.rank:
        follow(settings, RunBlobs(str(folder), folder / "cache"), ranks)
        return
    for name, experiment in experiments().items():
        if memory is None or name not in HELD:
            models(experiment, folder / name, torch.device("cpu"), memory, ranks)


if __name__ == "__main__":
    main()
