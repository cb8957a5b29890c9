"""The convolutional family: FedCAP's three networks by their layer sizes."""

import pytest
import torch
from torch import nn

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.network.models import models


@pytest.mark.parametrize(
    ("parameters", "shape", "classes", "flat"),
    [
        ({"channels": [32, 64], "kernel": 5, "padding": 0, "hidden": 64}, (3, 32, 32), 10, 1600),
        ({"channels": [16, 32], "kernel": 5, "padding": 0, "hidden": 128}, (1, 28, 28), 62, 512),
        ({"channels": [32, 64], "kernel": [1, 5], "padding": 0}, (3, 1, 200), 6, 3008),
        ({"pool": [2, 1]}, (1, 8, 8), 10, 512),
        ({}, (1, 8, 8), 10, 128),
        (
            {"channels": [6, 16], "kernel": 5, "padding": 0, "hidden": [120, 84]},
            (1, 28, 28),
            10,
            256,
        ),
        (
            {"channels": [6, 16], "kernel": 5, "padding": 0, "hidden": [120, 84, 84, 256]},
            (3, 32, 32),
            10,
            400,
        ),
        ({"channels": [30, 30], "kernel": 3, "padding": 1, "hidden": 200}, (1, 28, 28), 10, 1470),
    ],
)
def test_layer_sizes(
    parameters: dict[str, object], shape: tuple[int, ...], classes: int, flat: int
) -> None:
    module = models.build("cnn", **parameters).build(shape, classes)
    assert isinstance(module, nn.Sequential)
    assert module.hidden.in_features == flat
    assert module(torch.zeros(2, *shape)).shape == (2, classes)


def test_layers_stand_in_order_of_their_names() -> None:
    names = [name for name, _ in models.build("cnn").build((1, 8, 8), 10).named_parameters()]
    owners = [name.partition(".")[0] for name in names]
    assert owners == sorted(owners) == sorted(owners)
    assert owners[-1] == "output"


def test_what_does_not_fit() -> None:
    with pytest.raises(ConfigurationError, match="too deep for samples of shape"):
        models.build("cnn", kernel=5, padding=0).build((1, 8, 8), 10)
    with pytest.raises(ConfigurationError, match="takes images"):
        models.build("cnn").build((43,), 6)


def test_the_parameters_of_lenet_by_count() -> None:
    module = models.build("cnn", channels=[6, 16], kernel=5, padding=0, hidden=[120, 84]).build(
        (1, 28, 28), 10
    )
    assert sum(parameter.numel() for parameter in module.parameters()) == 44_426


def test_a_hidden_layer_needs_a_unit() -> None:
    with pytest.raises(ConfigurationError, match="at least one unit"):
        models.build("cnn", hidden=[8, 0])
