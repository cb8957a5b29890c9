"""Stacked models: every layer equals one model at a time, and models never mix."""

import sys
from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch import nn

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.network import stacked_layers
from rampart_fl.shared.learning.network.layers import ResidualBlock
from rampart_fl.shared.learning.network.stacked import Stacked
from rampart_fl.shared.learning.network.vector import flatten, load, unflatten
from tests.other_device import far, near, other_device

IMAGES = nn.Sequential(
    nn.Conv2d(2, 3, (3, 2), stride=2, padding=1, bias=False),
    nn.Tanh(),
    nn.AvgPool2d(2),
    nn.Conv2d(3, 4, 1),
    nn.GroupNorm(2, 4, eps=0.1),
    nn.Flatten(),
    nn.Linear(4 * 2 * 2, 5, bias=False),
)
VECTORS = nn.Sequential(nn.Linear(6, 4), nn.GroupNorm(2, 4), nn.GELU(), nn.Linear(4, 3))


class Adding(nn.Module):
    """A module that has no stacked form of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total: torch.Tensor = x + self.inner(x)
        return total


class Recurrent(nn.Module):
    """A module for which vmap has no rule."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.GRU(6, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        last: torch.Tensor = self.inner(x)[0][:, -1]
        return last


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (IMAGES, (2, 8, 8)),
        (VECTORS, (6,)),
        (Adding(), (6,)),
        (nn.Linear(6, 2), (6,)),
        (Recurrent(), (3, 6)),
    ],
    ids=["images", "vectors", "vmap", "linear", "recurrent"],
)
def test_stacked_logits_equal_those_of_one_model_at_a_time(
    module: nn.Module, shape: tuple[int, ...], k: int
) -> None:
    module, draws = module.double(), torch.Generator().manual_seed(4)
    network = Stacked(module)
    models_KD = torch.randn(k, network.spec.dim, generator=draws, dtype=torch.float64)
    x_KB = torch.rand(k, 5, *shape, generator=draws, dtype=torch.float64)
    logits = network.logits(models_KD, x_KB)
    for i in range(k):
        expected = load(module, models_KD[i])(x_KB[i])
        assert torch.allclose(logits[i], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(2, 3, 3),
        nn.Conv2d(2, 3, (3, 2), stride=2, padding=1, bias=False),
        nn.Conv2d(2, 4, (1, 5), stride=(1, 3), padding=(0, 2)),
        nn.Conv2d(2, 3, 3, padding="same", dilation=2),
    ],
    ids=str,
)
def test_convolution_on_another_device_has_the_same_output_and_gradients(layer: nn.Conv2d) -> None:
    draws = torch.Generator().manual_seed(4)
    network = Stacked(nn.Sequential(layer, nn.Flatten()).double())
    models_KD = torch.randn(3, network.spec.dim, generator=draws, dtype=torch.float64)
    x_KB = torch.rand(3, 5, 2, 8, 7, generator=draws, dtype=torch.float64)

    def results(models_KD: torch.Tensor, x_KB: torch.Tensor) -> list[torch.Tensor]:
        held_KD = models_KD.requires_grad_()
        logits = network.logits(held_KD, x_KB)
        (gradient_KD,) = torch.autograd.grad(logits.square().sum(), held_KD)
        return [logits.detach(), gradient_KD]

    expected = results(models_KD, x_KB)
    with other_device():
        observed = [near(one) for one in results(far(models_KD), far(x_KB))]
    for one, other in zip(observed, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_pass_on_another_device_multiplies_matrices_unless_the_windows_are_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = Stacked(nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten()))
    models_KD, x_KB = torch.ones(2, network.spec.dim), torch.ones(2, 4, 2, 8, 8)
    convolutions: list[int] = []
    convolve = torch.nn.functional.conv2d

    def counted(*args: Any, **kwargs: Any) -> torch.Tensor:
        convolutions.append(kwargs["groups"])
        return convolve(*args, **kwargs)

    monkeypatch.setattr("torch.nn.functional.conv2d", counted)
    with other_device():
        network.logits(far(models_KD), far(x_KB))
        assert convolutions == []
        monkeypatch.setattr(stacked_layers, "MOST_COPIES", 9 * x_KB.numel() - 1)
        network.logits(far(models_KD), far(x_KB))
        assert convolutions == [2]


class Counting(nn.Module):
    """A module with a buffer of its own."""

    def __init__(self, persistent: bool) -> None:
        super().__init__()
        self.register_buffer("scale", torch.full((1,), 3.0), persistent=persistent)
        self.inner = nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scaled: torch.Tensor = self.inner(x) * self.scale
        return scaled


def test_other_buffers_are_rejected_unless_they_are_constants() -> None:
    with pytest.raises(ConfigurationError, match=r"inner\.scale are not .*; register constants"):
        Stacked(nn.Sequential(OrderedDict(inner=Counting(persistent=True))))
    network = Stacked(Counting(persistent=False))
    models_KD = torch.ones(2, network.spec.dim)
    assert network.logits(models_KD, torch.ones(2, 1, 6)).tolist() == [[[21, 21]]] * 2


@pytest.mark.parametrize("wrong", [{"momentum": None}, {"track_running_stats": False}])
def test_batch_norm_without_momentum_or_running_statistics_is_rejected(
    wrong: dict[str, Any],
) -> None:
    with pytest.raises(ConfigurationError, match="'0' needs track_running_stats and a momentum"):
        Stacked(nn.Sequential(nn.BatchNorm1d(3, **wrong)))


class Normalized(nn.Module):
    """A module with running statistics that has no stacked form."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(6, affine=False, momentum=0.3)
        self.inner = nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h: torch.Tensor = self.norm(x)
        logits: torch.Tensor = self.inner(h + x)
        return logits


NORMALIZED = [
    (nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)), (6,)),
    (nn.Sequential(nn.BatchNorm1d(6, affine=False, momentum=0.3), nn.Linear(6, 2)), (6,)),
    (Normalized(), (6,)),
    (
        nn.Sequential(
            nn.Conv2d(2, 4, 3, bias=False),
            nn.BatchNorm2d(4, eps=0.1),
            ResidualBlock(nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4))),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        ),
        (2, 5, 4),
    ),
]


@pytest.mark.parametrize("sizes", [(5, 3, 0, 2), (5, 5, 5, 5)], ids=["padded", "whole"])
@pytest.mark.parametrize(
    ("module", "shape"), NORMALIZED, ids=["vectors", "plain", "one by one", "images"]
)
def test_batch_normalization_ignores_padding(
    module: nn.Module, shape: tuple[int, ...], sizes: tuple[int, ...]
) -> None:
    module, draws = module.double(), torch.Generator().manual_seed(4)
    network, whole = Stacked(module), min(sizes) == 5
    end = network.spec.trainable
    models_KD = torch.randn(4, network.spec.dim, generator=draws, dtype=torch.float64)
    models_KD[:, end:] = models_KD[:, end:].abs()
    x_KB = torch.rand(4, 5, *shape, generator=draws, dtype=torch.float64)
    inside_KB = torch.arange(5) < torch.tensor(sizes)[:, None]
    leaf_KD = models_KD.clone().requires_grad_()
    before_KD = models_KD.clone()
    logits, moved_KS = network.train(unflatten(leaf_KD, network.spec), x_KB, inside_KB, whole)
    (gradient_KD,) = torch.autograd.grad((logits.square() * inside_KB[:, :, None]).sum(), leaf_KD)
    assert moved_KS is not None and torch.equal(leaf_KD, before_KD)
    for k, size in enumerate(sizes):
        load(module, models_KD[k]).train()
        if not size:
            continue
        expected = module(x_KB[k, :size])
        assert torch.allclose(logits[k, :size], expected, rtol=0, atol=1e-12)
        assert torch.allclose(flatten(module)[end:], moved_KS[k], rtol=0, atol=1e-12)
        module.zero_grad()
        torch.autograd.backward(expected.square().sum())
        named = dict(module.named_parameters())
        own = [named[name].grad for name, _, _ in network.spec.parameters]
        own_D = torch.cat([g.flatten() for g in own if g is not None])
        assert torch.allclose(gradient_KD[k, :end], own_D, rtol=0, atol=1e-10)
        load(module, models_KD[k]).eval()
        at_rest = network.logits(models_KD, x_KB)
        assert torch.allclose(at_rest[k], module(x_KB[k]), rtol=0, atol=1e-12)


class Within(nn.Module):
    """A module that has no stacked form, and computes what `inner` computes."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.inner(x)
        return logits


def test_batch_of_one_sample_is_normalized_alike_with_and_without_a_stacked_form() -> None:
    module = nn.Sequential(
        nn.Conv2d(1, 2, 2),
        nn.BatchNorm2d(2),
        nn.Flatten(),
        nn.Linear(8, 3),
        nn.BatchNorm1d(3),
        nn.Linear(3, 2),
    ).double()
    networks, draws = [Stacked(module), Stacked(Within(module))], torch.Generator().manual_seed(4)
    x_KB = torch.rand(3, 2, 1, 3, 3, generator=draws, dtype=torch.float64)
    assert [network._form(x_KB) is None for network in networks] == [False, True]
    models_KD = flatten(module).expand(3, -1) + 0.1
    inside_KB = torch.tensor([[True, False], [True, True], [True, False]])
    results = []
    for network in networks:
        leaf_KD = models_KD.clone().requires_grad_()
        logits, moved_KS = network.train(unflatten(leaf_KD, network.spec), x_KB, inside_KB)
        weighted = logits * torch.tensor([1.0, 2.0]) * inside_KB[:, :, None]
        (gradient_KD,) = torch.autograd.grad(weighted.sum(), leaf_KD)
        assert moved_KS is not None
        # Doubling a sample changes the unbiased variance of its pixels in the first layer.
        means_and_later_KS = torch.cat([moved_KS[:, :2], moved_KS[:, 4:]], 1)
        results.append((logits[inside_KB], gradient_KD, means_and_later_KS))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


def test_running_statistics_come_after_all_parameters() -> None:
    spec = Stacked(NORMALIZED[3][0]).spec
    assert [name for name, _, _ in spec.statistics] == [
        "~1.running_mean",
        "~1.running_var",
        "~2.body.1.running_mean",
        "~2.body.1.running_var",
    ]
    assert spec.trainable == 2 * 4 * 9 + 8 + (16 + 4) + 8 == spec.dim - 16


def test_number_of_models_per_pass_is_limited_by_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr("rampart_fl.shared.learning.network.stacked.IN_CACHE", 6000)
    x_KB = torch.zeros(4, 10, 2, 8, 8)  # The samples are the largest: 1280 numbers per model.
    assert Stacked(IMAGES).at_once(x_KB) == Stacked(IMAGES).trained_at_once(x_KB) == 4
    large = Stacked(nn.Sequential(nn.Flatten(), nn.Linear(128, 20)))
    assert (large.at_once(x_KB), large.trained_at_once(x_KB)) == (4, 2)
    monkeypatch.setattr("rampart_fl.shared.learning.network.stacked.IN_CACHE", 100)
    assert Stacked(IMAGES).at_once(x_KB) == 1
    assert Stacked(Adding()).at_once(torch.zeros(4, 10, 6)) == sys.maxsize
