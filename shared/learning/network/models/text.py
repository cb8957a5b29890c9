"""A small text model: the scaled sum of a text's token vectors, then fully connected layers."""

from collections import OrderedDict
from itertools import pairwise
from typing import Annotated

from pydantic import Field
from torch import nn

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.network.layers import TextEmbedding
from rampart_fl.shared.learning.network.models import Model, models


@models.register("text")
class Text(Model):
    """Divides the sum of a text's n token vectors by √n, then applies hidden and output layers.

    A sample is a vector (tokens,) of token ids. The id 0 is padding, and all ids are below
    `vocabulary`. The layers after the sum are fully connected; a ReLU follows each hidden layer.

    This model replaces ALBERT-base, which MSDFL uses on AG News. Rampart cannot include ALBERT's
    pretrained weights; without these weights, the clients' few texts are not enough to train
    ALBERT. Use this model only to compare methods with each other: the accuracies in MSDFL's paper
    come from ALBERT.

    >>> sum(p.numel() for p in Text(vocabulary=100).build((40,), 4).parameters())
    3332
    """

    paper = "Joulin et al., Bag of tricks for efficient text classification, 2017"
    vocabulary: int = Field(default=8192, ge=2)
    """Number of token ids, padding included."""
    features: int = Field(default=32, ge=1)
    """Length of a token's vector."""
    hidden: list[Annotated[int, Field(ge=1)]] = Field(default=[])
    """Width of each hidden layer. If clients have only few texts, the model learns fastest without
    hidden layers."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        if len(shape) != 1:
            raise ConfigurationError(
                f"the model 'text' takes token ids (tokens,), not samples of shape {shape}"
            )
        layers: dict[str, nn.Module] = {"embedding": TextEmbedding(self.vocabulary, self.features)}
        widths = [self.features, *self.hidden]
        for i, (before, after) in enumerate(pairwise(widths), start=1):
            layers[f"hidden{i}"] = nn.Linear(before, after)
            layers[f"hidden{i}_relu"] = nn.ReLU()
        layers["output"] = nn.Linear(widths[-1], classes)
        return nn.Sequential(OrderedDict(layers))
