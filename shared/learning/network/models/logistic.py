"""Logistic regression."""

from collections import OrderedDict
from math import prod

from torch import nn

from rampart_fl.shared.learning.network.models import Model, models


@models.register("logistic")
class Logistic(Model):
    """One linear map from the flattened sample to the logits; its loss is convex in the parameters.

    >>> sum(p.numel() for p in Logistic().build((68,), 2).parameters())
    138
    """

    paper = "Cox, The regression analysis of binary sequences, 1958"

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        layers = {"flatten": nn.Flatten(), "output": nn.Linear(prod(shape), classes)}
        return nn.Sequential(OrderedDict(layers))
