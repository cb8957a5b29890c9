"""The papers' networks: their parameters, counted by hand layer by layer."""

import pytest
import torch

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.network.models import models

CIFAR, MNIST, WISDM = (3, 32, 32), (1, 28, 28), (3, 1, 200)


def first_block(before: int, after: int) -> int:
    """First of a group: two normalizations, two convolutions and a 1x1 convolution."""
    return 2 * before + before * after * 9 + 2 * after + after * after * 9 + before * after


def block(channels: int) -> int:
    """Two normalizations and two convolutions."""
    return 2 * (2 * channels + channels * channels * 9)


WIDE = [
    first_block(16, 32) + block(32),
    first_block(32, 64) + block(64),
    first_block(64, 128) + block(128),
]
COUNTS = [
    # channels in * channels out * window + biases; then inputs * outputs + biases
    (
        "fedcap_cifar",
        CIFAR,
        10,
        [3 * 32 * 25 + 32, 32 * 64 * 25 + 64, 64 * 5 * 5 * 64 + 64, 64 * 10 + 10],
        156_810,
    ),
    (
        "fedcap_emnist",
        MNIST,
        62,
        [1 * 16 * 25 + 16, 16 * 32 * 25 + 32, 32 * 4 * 4 * 128 + 128, 128 * 62 + 62],
        86_910,
    ),
    (
        "fedcap_wisdm",
        WISDM,
        6,
        [3 * 32 * 5 + 32, 32 * 64 * 5 + 64, 64 * 47 * 64 + 64, 64 * 6 + 6],
        203_782,
    ),
    (
        "sdea",
        CIFAR,
        10,
        [
            3 * 6 * 25 + 6,
            6 * 16 * 25 + 16,
            400 * 120 + 120,
            120 * 84 + 84,
            84 * 84 + 84,
            84 * 256 + 256,
            256 * 10 + 10,
        ],
        92_626,
    ),
    (
        "pawbrofl",
        MNIST,
        10,
        [1 * 30 * 9 + 30, 30 * 30 * 9 + 30, 30 * 7 * 7 * 200 + 200, 200 * 10 + 10],
        304_640,
    ),
    (
        "lenet5",
        MNIST,
        10,
        [1 * 6 * 25 + 6, 6 * 16 * 25 + 16, 256 * 120 + 120, 120 * 84 + 84, 84 * 10 + 10],
        44_426,
    ),
    (
        "alexnet",
        CIFAR,
        10,
        [
            3 * 64 * 121 + 64,
            64 * 192 * 25 + 192,
            192 * 384 * 9 + 384,
            384 * 256 * 9 + 256,
            256 * 256 * 9 + 256,
            256 * 10 + 10,
        ],
        2_472_266,
    ),
    ("wide_resnet", CIFAR, 100, [3 * 16 * 9, *WIDE, 2 * 128, 128 * 100 + 100], 703_284),
    ("logistic", (68,), 2, [68 * 2 + 2], 138),
    ("text", (64,), 4, [8192 * 32, 32 * 4 + 4], 262_276),
]


@pytest.mark.parametrize(
    ("name", "shape", "classes", "layers", "total"), COUNTS, ids=[case[0] for case in COUNTS]
)
def test_parameter_counts_match_hand_calculation(
    name: str, shape: tuple[int, ...], classes: int, layers: list[int], total: int
) -> None:
    module = models.build(name).build(shape, classes)
    assert sum(layers) == total == sum(p.numel() for p in module.parameters())
    assert module(torch.zeros(2, *shape)).shape == (2, classes)


def test_lenet_logits_may_be_negative() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = models.build("lenet5").build(MNIST, 10)
        logits = module(torch.rand(16, *MNIST))
    assert bool((logits < 0).any())


@pytest.mark.parametrize(
    ("name", "shape"), [("alexnet", (3, 28, 28)), ("lenet5", (1, 8, 8)), ("text", (1, 8, 8))]
)
def test_unsuitable_sample_shapes_are_rejected(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigurationError, match=r"samples of shape \("):
        models.build(name).build(shape, 10)
