"""Combinations: their factors, the levels of each factor, and the experiment of a combination."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

DEFAULT: tuple[dict[str, Any], ...] = ({"name": "response"}, {"name": "challenge"})
"""The default detectors."""
IMBALANCE = 160
"""Imbalance requested for client sizes that range over two orders of magnitude. The actual range is
smaller, because of rounding and because only some clients hold each class."""
LEAST = 4
"""Minimum number of samples per client, training and test samples together."""
DIRICHLET: dict[str, Any] = {"name": "dirichlet", "minimum": LEAST}
PARTITIONS: dict[str, dict[str, Any]] = {
    "1 class": {"name": "classes_per_client", "classes": 1},
    "2 classes": {"name": "classes_per_client", "classes": 2},
    "3 classes": {"name": "classes_per_client", "classes": 3},
    "5 classes": {"name": "classes_per_client", "classes": 5},
    "Dirichlet 0.1": {**DIRICHLET, "beta": 0.1},
    "Dirichlet 0.3": {**DIRICHLET, "beta": 0.3},
    "Dirichlet 1": {**DIRICHLET, "beta": 1},
    "Dirichlet 0.1 unbalanced": {**DIRICHLET, "beta": 0.1, "balanced": False},
    "Dirichlet 0.3 unbalanced": {**DIRICHLET, "beta": 0.3, "balanced": False},
    "Dirichlet 1 unbalanced": {**DIRICHLET, "beta": 1, "balanced": False},
    "sizes 1 to 100": {"name": "iid", "imbalance": IMBALANCE},
    "2 classes, sizes 1 to 100": {
        "name": "classes_per_client",
        "classes": 2,
        "imbalance": IMBALANCE,
    },
    "few large": {"name": "iid", "imbalance": 200, "large": 0.2},
    "users": {"name": "by_group"},
}
SIZED = ("sizes 1 to 100", "2 classes, sizes 1 to 100", "few large")
WIDE = ("1 class", "Dirichlet 0.1", "Dirichlet 0.1 unbalanced")
"""Partitions with a wide spread of honest updates. For these partitions, there is no detection
target for attacks that stay within the spread."""
UNSEEN = ("usps", "cifar10")
"""Data sets that no sample contained while the detectors were designed. A sample contains them only
if `--data-sets` names them."""
FACTORS: dict[str, tuple[Any, ...]] = {
    "data_set": ("digits", "mnist", "fashion_mnist", "wisdm", "hapt", "phishing"),
    "partition": tuple(PARTITIONS),
    "clients": (10, 20, 30, 50, 100),
    "fraction": (1.0, 0.5, 0.2),
    "epochs": (1, 5),
    "network": ("cnn", "mlp"),
    "rounds": (30, 60, 100),
    "method": ("fedcap", "global"),
}
"""The levels of each factor, all equally likely. So half of the runs use FedCAP, and half use plain
averaging into one global model."""
RATES = {"wisdm": 0.01, "hapt": 0.01}
"""Learning rates that differ from `RATE`."""
RATE = 0.05
MODELS: dict[str, dict[str, Any]] = {
    "cnn": {"name": "cnn", "channels": [8, 16], "hidden": 32},
    "mlp": {"name": "mlp", "hidden": [64]},
}
FEDCAP = {"name": "fedcap", "alpha": 10, "phi": 0.1}
TEST = 0.25

PASS = {
    ("digits", "cnn"): 32e-6,
    ("digits", "mlp"): 17e-6,
    ("mnist", "cnn"): 183e-6,
    ("mnist", "mlp"): 76e-6,
    ("fashion_mnist", "cnn"): 183e-6,
    ("fashion_mnist", "mlp"): 76e-6,
    ("wisdm", "mlp"): 11e-6,
    ("hapt", "cnn"): 105e-6,
    ("hapt", "mlp"): 45e-6,
    ("phishing", "mlp"): 12e-6,
    ("usps", "cnn"): 70e-6,
    ("usps", "mlp"): 35e-6,
    ("cifar10", "cnn"): 270e-6,
    ("cifar10", "mlp"): 250e-6,
}
"""Seconds on one core per training sample and epoch with FedCAP. The times of `hapt` and `phishing`
were measured on random numbers of the same shape. The times of `UNSEEN` are estimates from the
number of pixels."""
UPLOAD = 0.002
"""Seconds on one core per client and round that do not depend on the number of samples."""
LONGEST = 60.0
"""Largest estimated seconds of a run on one core; it limits the samples per client."""
SAMPLES, SAMPLES_SIZED = 100, 200
"""Mean number of samples per client if nothing caps it. `SAMPLES_SIZED` is for partitions in
`SIZED`, and `SAMPLES` is for all others."""


@dataclass(frozen=True)
class Combination:
    """One point of the grid of `FACTORS`, and the seed of its run."""

    data_set: str
    partition: str
    clients: int
    fraction: float
    epochs: int
    network: str
    rounds: int
    method: str
    seed: int

    @property
    def samples(self) -> int:
        """Mean number of samples per client, training and test samples together.

        The cap applies to the mean. A cap on each client would make all clients' sizes similar.
        """
        if self.partition == "users":
            return _total(self.data_set) // self.clients
        wanted = SAMPLES_SIZED if self.partition in SIZED else SAMPLES
        spare = LONGEST / (self.rounds * self._drawn) - UPLOAD
        affordable = spare / (self._pass * self.epochs * (1 - TEST))
        return max(1, min(wanted, int(affordable), _total(self.data_set) // self.clients))

    @property
    def seconds(self) -> float:
        """Estimated time of a run on one core."""
        trained = self.samples * (1 - TEST) * self.epochs
        return self.rounds * self._drawn * (UPLOAD + self._pass * trained)

    @property
    def _drawn(self) -> int:
        return ceil(self.fraction * self.clients)

    @property
    def _pass(self) -> float:
        # The default is never used, because combinations without a measured time are refused.
        under_fedcap = PASS.get((self.data_set, self.network), 1e-5)
        return under_fedcap if self.method == "fedcap" else 0.7 * under_fedcap

    def tables(
        self,
        detectors: Sequence[Mapping[str, Any]] = (),
        attackers: Sequence[Mapping[str, Any]] = (),
    ) -> dict[str, Any]:
        """The experiment's tables."""
        fedcap = self.method == "fedcap"
        used = self.samples * self.clients
        reserved = 0 if self.partition == "users" else max(0, _total(self.data_set) - used)
        return {
            "name": "detection",
            "seed": self.seed,
            "rounds": self.rounds,
            "fraction": self.fraction,
            "data": {
                "dataset": self.data_set,
                "partition": PARTITIONS[self.partition],
                "clients": self.clients,
                "test_fraction": TEST,
                "reserved": reserved,
            },
            "model": MODELS[self.network],
            "training": {
                "epochs": self.epochs,
                "batch_size": 10,
                "learning_rate": RATES.get(self.data_set, RATE),
            },
            "personalizer": {"name": "fedcap", "lambda": 0.1} if fedcap else {"name": "none"},
            "server": {
                "detectors": [dict(detector) for detector in detectors],
                "customizer": FEDCAP if fedcap else {"name": "global_model"},
            },
            "attackers": [dict(group) for group in attackers],
        }


def _total(data_set: str) -> int:
    from rampart_fl.shared.learning.data.datasets import datasets

    return datasets.get(data_set).total
