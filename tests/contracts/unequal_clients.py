"""Three clients with unequal data, and so ragged batches, for the contract suites of training."""

from typing import Any

import torch
from torch import Tensor

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.learning.data.client_data import ClientData
from rampart_fl.shared.learning.training.learner import Learner

NAMES = ["a", "b", "c"]
SIZES = (10, 7, 4)


def learner_of(personalizer: str = "none", **training: Any) -> Learner:
    """A learner of a small network in float64."""
    tables: dict[str, Any] = {
        "name": "contract",
        "data": {"dataset": "digits"},
        "model": {"name": "cnn", "channels": [2], "hidden": 4},
        "training": {"epochs": 2, "batch_size": 4, "learning_rate": 0.05, **training},
        "personalizer": personalizer,
    }
    learner = Learner.of(Experiment.from_tables(tables))
    learner.network.module.double()
    return learner


def clients() -> list[ClientData]:
    """The samples of the three clients."""
    draws = torch.Generator().manual_seed(2)

    def sample(n: int) -> tuple[Tensor, Tensor]:
        x = torch.rand(n, 1, 8, 8, generator=draws, dtype=torch.float64)
        return x, torch.randint(10, (n,), generator=draws)

    return [ClientData(*sample(n), *sample(3), 10) for n in SIZES]


def received(learner: Learner) -> Tensor:
    """The models (K, D) from which the clients train."""
    draws = torch.Generator().manual_seed(8)
    noise_KD = torch.randn(3, learner.spec.dim, generator=draws, dtype=torch.float64)
    return learner.initial_model() + 0.1 * noise_KD
