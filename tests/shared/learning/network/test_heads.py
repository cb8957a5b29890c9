"""Heads: which coordinates they contain, and modules without a default head."""

import pytest
import torch
from torch import nn

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.network.heads import check_output, head_of, last_linear
from rampart_fl.shared.modelspec import ModelSpec


def spec(module: nn.Module) -> ModelSpec:
    return ModelSpec.of((name, p.shape) for name, p in module.named_parameters())


class Named(nn.Module):
    """A module whose last layer is not the last one that it registers."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(2, 1)
        self.block = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))


def test_head_contains_exactly_the_parameters_of_the_named_layer() -> None:
    module = nn.Sequential(*(nn.Linear(1, 1) for _ in range(11)))
    names = [name for name, _, _ in spec(module).layout]
    picked = [
        n for n, inside in zip(names, head_of(module, spec(module), "1"), strict=True) if inside
    ]
    assert picked == ["1.bias", "1.weight"]


def test_head_is_the_last_linear_layer_unless_another_is_named() -> None:
    module = Named()
    assert last_linear(module) == "block.1"
    assert head_of(module, spec(module)).sum() == 6
    assert head_of(module, spec(module), "block").sum() == 14
    assert head_of(module, spec(module), "out.bias").sum() == 1


def test_head_includes_the_running_statistics_of_its_layer() -> None:
    shapes = [("body.weight", (2,)), ("norm.weight", (3,)), ("~norm.running_var", (3,))]
    module = nn.Sequential()
    mask_D = head_of(module, ModelSpec.of(shapes), "norm")
    assert mask_D.tolist() == [False] * 2 + [True] * 6


def test_head_of_a_single_layer_is_the_whole_model() -> None:
    module = nn.Linear(2, 2)
    assert head_of(module, spec(module)).all()


def test_module_without_a_linear_layer_needs_a_named_head() -> None:
    module = nn.Sequential(nn.Conv1d(1, 1, 1), nn.Flatten())
    with pytest.raises(ConfigurationError, match="no linear layer"):
        head_of(module, spec(module))
    assert torch.equal(head_of(module, spec(module), "0"), torch.ones(2, dtype=torch.bool))


class Normed(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.normalize(super().forward(x))


def test_head_must_be_a_plain_linear_layer_and_the_last_one() -> None:
    act = nn.ReLU()
    check_output(nn.Sequential(nn.Linear(2, 2), act, nn.Linear(2, 2), act, nn.Linear(2, 2)))
    with pytest.raises(ConfigurationError, match="'3' follows '2'"):
        check_output(nn.Sequential(nn.Linear(2, 2), act, nn.Linear(2, 2), act))
    with pytest.raises(ConfigurationError, match="one linear layer; '0' is Normed"):
        check_output(nn.Sequential(Normed(2, 2)))
