"""The multilayer perceptron."""

import torch

from rampart_fl.shared.learning.network.models.mlp import MLP


def test_mlp_without_hidden_layers_is_one_linear_map() -> None:
    module = MLP(hidden=[]).build((1, 2, 2), 3)
    weight, bias = module.parameters()
    x = torch.arange(8.0).reshape(2, 1, 2, 2)
    torch.testing.assert_close(module(x), x.flatten(1) @ weight.T + bias)


def test_hidden_layers_have_the_configured_widths() -> None:
    shapes = [tuple(p.shape) for p in MLP(hidden=[7, 5]).build((4,), 3).parameters()]
    assert shapes == [(7, 4), (7,), (5, 7), (5,), (3, 5), (3,)]
