"""The convolutional family: layer sizes of published and other networks, and invalid shapes."""

from typing import Any

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
def test_first_hidden_layer_has_the_expected_number_of_inputs(
    parameters: dict[str, object], shape: tuple[int, ...], classes: int, flat: int
) -> None:
    module = models.build("cnn", **parameters).build(shape, classes)
    assert isinstance(module, nn.Sequential)
    assert module.hidden.in_features == flat
    assert module(torch.zeros(2, *shape)).shape == (2, classes)


def test_layers_are_in_alphabetical_order_with_output_last() -> None:
    names = [name for name, _ in models.build("cnn").build((1, 8, 8), 10).named_parameters()]
    owners = [name.partition(".")[0] for name in names]
    assert owners == sorted(owners)
    assert owners[-1] == "output"


def test_unsuitable_sample_shapes_are_rejected() -> None:
    with pytest.raises(ConfigurationError, match="too deep for samples of shape"):
        models.build("cnn", kernel=5, padding=0).build((1, 8, 8), 10)
    with pytest.raises(ConfigurationError, match="takes images"):
        models.build("cnn").build((43,), 6)


def test_lenet_has_the_published_number_of_parameters() -> None:
    module = models.build("cnn", channels=[6, 16], kernel=5, padding=0, hidden=[120, 84]).build(
        (1, 28, 28), 10
    )
    assert sum(parameter.numel() for parameter in module.parameters()) == 44_426


def test_hidden_layer_without_units_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match="at least one unit"):
        models.build("cnn", hidden=[8, 0])


@pytest.mark.parametrize(
    "sizes", [{"channels": [16, 0]}, {"channels": [-4]}, {"kernel": 0}, {"kernel": [1, 0]}]
)
def test_sizes_below_one_are_rejected(sizes: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="greater than or equal to 1"):
        models.parse({"name": "cnn", **sizes})
