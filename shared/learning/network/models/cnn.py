"""Convolutions with pooling, then hidden layers, as in the networks of FedCAP and other papers."""

from collections import OrderedDict
from itertools import pairwise
from typing import Annotated

from pydantic import Field, field_validator
from torch import nn

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.network.models import Model, models

Side = Annotated[int, Field(ge=1)]


@models.register("cnn")
class CNN(Model):
    """Convolution, ReLU and max pooling for each entry of `channels`, then hidden layers with ReLU.

    An image of height 1 (a signal) is convolved and pooled only along its width. The papers'
    networks have padding 0, kernel 5 and pooling by 2 unless stated otherwise:

    - FedCAP: channels [32, 64], hidden 64 (CIFAR-10); channels [16, 32], hidden 128 (EMNIST);
    channels [32, 64], kernel [1, 5], hidden 64 (WISDM);
    - MSDFL's LeNet-5: channels [6, 16], hidden [120, 84], without the ReLU that MSDFL's code
    applies to the logits;
    - SDEA: channels [6, 16], hidden [120, 84, 84, 256];
    - PAwBRoFL: channels [30, 30], kernel 3, padding 1, hidden 200.

    >>> sum(p.numel() for p in CNN(channels=[16, 32], hidden=64).build((1, 8, 8), 10).parameters())
    13706
    """

    paper = "FedCAP, section VI-A1"
    channels: list[Annotated[int, Field(ge=1)]] = Field(default=[16, 32], min_length=1)
    hidden: int | list[int] = 64
    """Width of the hidden layer, or a list with the width of each hidden layer."""
    kernel: Side | tuple[Side, Side] = 3
    """Side of a square convolution window, or the window's height and width."""
    padding: int | None = Field(default=None, ge=0)
    """Width of the zero padding; by default, convolutions keep the image's size."""
    pool: list[Annotated[int, Field(ge=1)]] = Field(default=[2], min_length=1)
    """Side of the pooling window after each convolution; the last value also applies to all further
    convolutions."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        if len(shape) != 3:
            raise ConfigurationError(f"cnn takes images (channels, height, width), not {shape}")
        depth, height, width = shape
        kernel = self.kernel if isinstance(self.kernel, tuple) else (self.kernel, self.kernel)
        layers: dict[str, nn.Module] = {}
        for i, (before, after) in enumerate(pairwise([depth, *self.channels]), start=1):
            window = (1 if height == 1 else kernel[0], 1 if width == 1 else kernel[1])
            pads = (self._pad(window[0]), self._pad(window[1]))
            height, width = (
                height + 2 * pads[0] - window[0] + 1,
                width + 2 * pads[1] - window[1] + 1,
            )
            side = self.pool[min(i, len(self.pool)) - 1]
            pool = (1 if height == 1 else side, 1 if width == 1 else side)
            layers[f"conv{i}"] = nn.Conv2d(before, after, window, padding=pads)
            layers[f"relu{i}"] = nn.ReLU()
            if pool != (1, 1):
                layers[f"pool{i}"] = nn.MaxPool2d(pool)
            height, width = height // pool[0], width // pool[1]
            if min(height, width) < 1:
                raise ConfigurationError(
                    f"cnn with channels {self.channels}, kernel {self.kernel} and padding "
                    f"{self.padding} is too deep for samples of shape {shape}"
                )
        flat = self.channels[-1] * height * width
        layers["flatten"] = nn.Flatten()
        widths = [self.hidden] if isinstance(self.hidden, int) else self.hidden
        for i, (before, after) in enumerate(pairwise([flat, *widths]), start=1):
            name = "hidden" if i == 1 else f"hidden{i}"
            layers[name] = nn.Linear(before, after)
            layers[f"{name}_relu"] = nn.ReLU()
        layers["output"] = nn.Linear(widths[-1] if widths else flat, classes)
        return nn.Sequential(OrderedDict(layers))

    @field_validator("hidden")
    @classmethod
    def _positive(cls, hidden: int | list[int]) -> int | list[int]:
        if min([hidden] if isinstance(hidden, int) else hidden, default=1) < 1:
            raise ValueError("a hidden layer needs at least one unit")
        return hidden

    def _pad(self, window: int) -> int:
        if window == 1:
            return 0
        return (window - 1) // 2 if self.padding is None else self.padding
