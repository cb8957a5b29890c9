"""FedProx: the trained model stays near the received model."""

from typing import ClassVar

from pydantic import Field
from torch import Tensor

from rampart_fl.shared.learning.training.objectives import Objective, Point, objectives


@objectives.register("fedprox")
class FedProx(Objective):
    """Pulls the trained model towards the received model.

    The term is μ/2 |w - w^t|², where w is the trained model, and w^t is the model as received.

    The model w^t stays fixed during the round. With the option `personal`, the term also pulls
    personal models towards the received model. The personalizers `ditto` and `fedcap` already pull
    personal models with strength λ. With the option `personal`, the total strength is then λ + μ.

    >>> import torch
    >>> from unittest.mock import Mock
    >>> point = Mock(models_KD=torch.tensor([[3.0, 1.0]]), received_KD=torch.ones(1, 2))
    >>> FedProx(mu=0.5).gradient(point)
    tensor([[1., 0.]])
    """

    paper = "Li et al., Federated optimization in heterogeneous networks (FedProx), 2020"
    weight_name: ClassVar[str] = "mu"
    reads_samples: ClassVar[bool] = False
    mu: float = Field(default=0.01, ge=0)
    """Strength μ of the pull towards the received model."""

    @property
    def weight(self) -> float:
        return self.mu

    def gradient(self, point: Point) -> Tensor:
        return self.mu * (point.models_KD - point.received_KD)
