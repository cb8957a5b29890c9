"""A module has a stacked form only if the form computes the same as the module."""

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from rampart_fl.shared.learning.network.layers import ResidualBlock
from rampart_fl.shared.learning.network.models import models
from rampart_fl.shared.learning.network.stacked import Stacked
from rampart_fl.shared.learning.network.vector import flatten, load, unflatten

VECTOR, MATRIX, IMAGE = (6,), (5, 6), (2, 6, 6)


class Doubled(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class Standardized(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return nn.functional.conv2d(x, weight, self.bias)


class Shifted(nn.BatchNorm1d):
    def forward(self, x: Tensor) -> Tensor:
        shifted: Tensor = super().forward(x) + 1
        return shifted


class Scaled(nn.ReLU):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * super().forward(x)


class Rectified(ResidualBlock):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).relu()


class Backwards(nn.Sequential):
    def __iter__(self) -> Any:
        return reversed(list(super().__iter__()))


class Built(nn.Sequential):
    """A sequence that is built in its own way, as most of users' networks."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2))


def shared_activation() -> nn.Module:
    act = nn.Tanh()
    return nn.Sequential(nn.Linear(6, 4), act, nn.Linear(4, 4), act, nn.Linear(4, 2))


def shared_in_blocks() -> nn.Module:
    act = nn.Sigmoid()
    body = nn.Sequential(nn.Conv2d(3, 3, 1), act, nn.Conv2d(3, 3, 1), act)
    parts = (nn.Conv2d(2, 3, 3), act, ResidualBlock(body, act))
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(48, 2))


def shared_layer() -> nn.Module:
    inner = nn.Linear(6, 6)
    return nn.Sequential(inner, nn.Tanh(), inner, nn.Linear(6, 2))


def shared_normalization() -> nn.Module:
    norm = nn.BatchNorm1d(6)
    return nn.Sequential(norm, nn.Linear(6, 6), norm, nn.Linear(6, 2))


def shared_weight() -> nn.Module:
    first, second = nn.Linear(6, 6), nn.Linear(6, 6)
    second.weight = first.weight
    return nn.Sequential(first, nn.Tanh(), second, nn.Linear(6, 2))


def hooked() -> nn.Module:
    layer = nn.Linear(6, 2)
    layer.register_forward_hook(lambda layer, inputs, output: 3 * output)
    return nn.Sequential(layer)


def hooked_before() -> nn.Module:
    layer = nn.Tanh()
    layer.register_forward_pre_hook(lambda layer, inputs: (3 * inputs[0],))
    return nn.Sequential(layer, nn.Linear(6, 2))


def constant_weight() -> nn.Module:
    layer = nn.Linear(6, 6)
    weight = layer.weight.detach()
    del layer.weight
    layer.register_buffer("weight", weight, persistent=False)
    return nn.Sequential(layer, nn.Linear(6, 2))


def overwriting() -> nn.Module:
    body = nn.Sequential(nn.ReLU(inplace=True), nn.MaxPool2d(3, 1, 1), nn.Conv2d(3, 3, 1))
    return nn.Sequential(nn.Conv2d(2, 3, 3), ResidualBlock(body), nn.Flatten(), nn.Linear(48, 2))


MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], bool]] = {
    "shared activation": (shared_activation, VECTOR, True),
    "shared in blocks": (shared_in_blocks, IMAGE, True),
    "shared layer": (shared_layer, VECTOR, False),
    "shared normalization": (shared_normalization, VECTOR, False),
    "shared weight": (shared_weight, VECTOR, False),
    "subclass": (lambda: nn.Sequential(Doubled(6, 2)), VECTOR, False),
    "subclass of a convolution": (
        lambda: nn.Sequential(Standardized(2, 3, 3), nn.Flatten(), nn.Linear(48, 2)),
        IMAGE,
        False,
    ),
    "subclass of a normalization": (
        lambda: nn.Sequential(Shifted(6), Doubled(6, 2)),
        VECTOR,
        False,
    ),
    "subclass with a parameter": (lambda: nn.Sequential(Scaled(), nn.Linear(6, 2)), VECTOR, False),
    "subclass of a block": (
        lambda: nn.Sequential(Rectified(nn.Linear(6, 6)), nn.Linear(6, 2)),
        VECTOR,
        False,
    ),
    "subclass of a sequence": (lambda: Backwards(nn.Linear(6, 2), nn.Tanh()), VECTOR, False),
    "sequence built in its own way": (Built, VECTOR, True),
    "hook": (hooked, VECTOR, False),
    "hook before": (hooked_before, VECTOR, False),
    "parametrized": (
        lambda: nn.Sequential(parametrizations.weight_norm(nn.Linear(6, 6)), Built()),
        VECTOR,
        False,
    ),
    "constant weight": (constant_weight, VECTOR, False),
    "overwriting": (overwriting, IMAGE, True),
    "linear on a matrix": (
        lambda: nn.Sequential(nn.Linear(6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(15, 2)),
        MATRIX,
        False,
    ),
    "linear on an image": (
        lambda: nn.Sequential(nn.Linear(6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(36, 2)),
        IMAGE,
        False,
    ),
    "normalization of a matrix": (
        lambda: nn.Sequential(nn.BatchNorm1d(5), nn.Flatten(), nn.Linear(30, 2)),
        MATRIX,
        False,
    ),
    "flattened matrix": (
        lambda: nn.Sequential(nn.Tanh(), nn.Flatten(), nn.Linear(30, 2)),
        MATRIX,
        True,
    ),
    "pooled matrix": (
        lambda: nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(6, 2)),
        MATRIX,
        False,
    ),
}


@pytest.mark.parametrize("clients", [1, 5])  # Samples and clients of equal number can be mixed up.
@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize(("build", "shape", "stacked"), MODULES.values(), ids=MODULES)
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
def test_stacked_models_and_their_gradients_equal_those_of_single_models(
    build: Callable[[], nn.Module],
    shape: tuple[int, ...],
    stacked: bool,
    training: bool,
    clients: int,
) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        module = build().double()
    network, draws = Stacked(module), torch.Generator().manual_seed(4)
    end = network.spec.trainable
    noise_KD = torch.randn(clients, network.spec.dim, generator=draws, dtype=torch.float64)
    models_KD = flatten(module) + 0.3 * noise_KD
    models_KD[:, end:] = models_KD[:, end:].abs() + 0.5
    x_KB = torch.randn(clients, 5, *shape, generator=draws, dtype=torch.float64)
    inside_KB = torch.ones(clients, 5, dtype=torch.bool)
    leaf_KD = models_KD.clone().requires_grad_()
    if training:
        logits = network.train(unflatten(leaf_KD, network.spec), x_KB, inside_KB, whole=True)[0]
    else:
        logits = network.logits(leaf_KD, x_KB)
    (gradient_KD,) = torch.autograd.grad(logits.square().sum(), leaf_KD)

    assert (network.at_once(x_KB) < sys.maxsize) == stacked
    for k in range(clients):
        expected = load(module, models_KD[k]).train(training)(x_KB[k].clone())
        assert torch.allclose(logits[k], expected, rtol=0, atol=1e-10)
        module.zero_grad()
        torch.autograd.backward(expected.square().sum())
        named = dict(module.named_parameters())
        own = [named[name].grad for name, _, _ in network.spec.parameters]
        assert all(g is not None for g in own)
        own_D = torch.cat([g.flatten() for g in own if g is not None])
        assert torch.allclose(gradient_KD[k, :end], own_D, rtol=0, atol=1e-8)


def test_shared_normalization_moves_its_statistics_at_each_use() -> None:
    module = shared_normalization().double()
    network, x_KB = Stacked(module), torch.arange(60.0).view(2, 5, 6).double().sin()
    models_KD = flatten(module).repeat(2, 1)
    tensors, inside_KB = unflatten(models_KD, network.spec), torch.ones(2, 5, dtype=torch.bool)
    moved_KS = network.train(tensors, x_KB, inside_KB)[1]
    assert moved_KS is not None
    for k in range(2):
        load(module, models_KD[k]).train()(x_KB[k])
        assert torch.allclose(flatten(module)[network.spec.trainable :], moved_KS[k])


@pytest.mark.parametrize("name", [n for n in models.names() if n not in ("module", "mean")])
def test_every_model_of_rampart_has_a_stacked_form(name: str) -> None:
    shape = {"text": (5,), "harnet": (3, 1, 200)}.get(name, (3, 32, 32))
    x_KB = torch.zeros(2, 3, *shape)
    assert Stacked(models.build(name).build(shape, 3)).at_once(x_KB) < sys.maxsize


class Moody(nn.Module):
    """A module whose output depends on its mode."""

    def __init__(self, normalized: bool) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(6, affine=False) if normalized else nn.Identity()
        self.inner = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.inner(self.norm(x))
        return logits if self.training else 10 * logits


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("clients", [1, 3])
def test_modules_without_a_stacked_form_run_in_the_right_mode(
    clients: int, normalized: bool
) -> None:
    module = Moody(normalized)
    network, x_KB = Stacked(module), torch.linspace(-1, 1, 30).view(5, 6).repeat(clients, 1, 1)
    models_KD = flatten(module).repeat(clients, 1)
    inside_KB = torch.ones(clients, 5, dtype=torch.bool)
    for training in (False, True, False):
        if training:
            logits = network.train(unflatten(models_KD, network.spec), x_KB, inside_KB)[0]
        else:
            logits = network.logits(models_KD, x_KB)
        expected = load(module, models_KD[0]).train(training)(x_KB[0])
        assert torch.allclose(logits, expected.expand_as(logits), atol=1e-6)
