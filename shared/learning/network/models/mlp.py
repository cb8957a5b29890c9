"""The multilayer perceptron; without hidden layers, it is logistic regression."""

from itertools import pairwise
from math import prod
from typing import Annotated

from pydantic import Field
from torch import nn

from rampart_fl.shared.learning.network.models import Model, models


@models.register("mlp")
class MLP(Model):
    """Flattening, a linear layer with ReLU for each width in `hidden`, and a linear output layer.

    >>> sum(p.numel() for p in MLP(hidden=[]).build((1, 8, 8), 10).parameters())
    650
    """

    paper = "Rumelhart, Hinton and Williams, 1986"
    hidden: list[Annotated[int, Field(ge=1)]] = Field(default=[64])
    """Width of each hidden layer."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        layers: list[nn.Module] = [nn.Flatten()]
        for before, after in pairwise([prod(shape), *self.hidden]):
            layers += [nn.Linear(before, after), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear([prod(shape), *self.hidden][-1], classes))
