"""A vector that estimates the mean of a client's samples.

Legend: B samples in a batch, d coordinates of a sample.
"""

from math import prod

import torch
from torch import Tensor, nn

from rampart_fl.shared.learning.network.models import Model, models


class Residuals(nn.Module):
    """Returns the residual θ - y of every sample y, where θ are the parameters.

    The residual is the gradient of the loss ½|y - θ|² with respect to θ.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.zeros(size))

    def forward(self, y_B: Tensor) -> Tensor:
        """Residuals (B, d)."""
        return self.theta - y_B.flatten(1)


@models.register("mean")
class Mean(Model):
    """One parameter for each coordinate of a sample, initially 0; training learns the mean.

    >>> Mean().build((2,), 0)(torch.tensor([[1.0, -3.0]])).tolist()
    [[-1.0, 3.0]]
    """

    paper = "fine-tuned personalization, mean estimation"
    task = "estimation"

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        return Residuals(prod(shape))
