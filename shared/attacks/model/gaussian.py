"""Gaussian noise instead of an update."""

import torch
from pydantic import Field
from torch import Tensor

from rampart_fl.shared.attacks.base import Knowledge, ModelAttack
from rampart_fl.shared.attacks.model import attacks
from rampart_fl.shared.attacks.noise import normal, per_attacker


@attacks.register("gaussian")
class Gaussian(ModelAttack):
    """Uploads Gaussian noise.

    Each coordinate of the upload is drawn from a normal distribution with the mean `mean` and the
    standard deviation `std`. The upload does not depend on the honest update.

    >>> Gaussian(mean=3, std=0).apply(torch.zeros(1, 2), Knowledge(4, 1))
    tensor([[3., 3.]])
    """

    paper = "Blanchard et al., Machine learning with adversaries, 2017; ByzFL"
    mean: float = 0.0
    """Mean of the noise."""
    std: float = Field(default=1.0, ge=0)
    """Standard deviation of the noise."""

    def craft(self, own_FD: Tensor, knowledge: Knowledge) -> Tensor:
        draws = per_attacker(knowledge, self.name, len(own_FD))
        noise_FD = torch.stack([normal(own_FD.shape[1], draw) for draw in draws])
        return self.mean + self.std * noise_FD
