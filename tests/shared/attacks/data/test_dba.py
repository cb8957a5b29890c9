"""DBA: the published pixels, a part per attacker, their union at test time."""

import pytest
import torch

from rampart_fl.shared.attacks.data import attacks
from rampart_fl.shared.attacks.triggers import Backdoor
from rampart_fl.shared.errors import ConfigurationError

MNIST = [
    {(0, 0), (0, 1), (0, 2), (0, 3)},
    {(0, 6), (0, 7), (0, 8), (0, 9)},
    {(3, 0), (3, 1), (3, 2), (3, 3)},
    {(3, 6), (3, 7), (3, 8), (3, 9)},
]


def build(**parameters: float) -> Backdoor:
    attack = attacks.build("dba", **parameters)
    assert isinstance(attack, Backdoor)
    return attack


def lit(image: torch.Tensor) -> set[tuple[int, int]]:
    return {(int(row), int(column)) for row, column in image.nonzero().tolist()}


def test_mnist_trigger_has_the_published_pixels() -> None:
    for attacker, pixels in enumerate(MNIST):
        assert set(build().part(attacker)) == pixels
        assert set(build().part(attacker + 4)) == pixels


def test_cifar_trigger_bars_are_three_pixels_apart() -> None:
    attack = build(width=6, gap=3)
    assert attack.part(0) == tuple((0, column) for column in range(6))
    assert attack.part(3) == tuple((4, column) for column in range(9, 15))


def test_shift_moves_the_whole_trigger() -> None:
    moved = {(row + 2, column + 2) for part in MNIST for row, column in part}
    assert set(build(shift=2).whole()) == moved


def test_attackers_train_on_their_part_and_tests_show_the_whole_trigger() -> None:
    attack = build(poison_rate=1)
    x, y = torch.zeros(3, 1, 12, 12), torch.tensor([0, 2, 5])
    for attacker, pixels in enumerate(MNIST):
        poisoned, labels = attack.apply(x, y, 10, torch.Generator(), attacker)
        assert lit(poisoned[0, 0]) == pixels
        assert labels.tolist() == [2, 2, 2]
    shown = attack.triggered(x, y)
    assert len(shown) == 2
    assert lit(shown[0, 0]) == set.union(*MNIST)


def test_default_poison_rate_is_twenty_of_sixty_four_samples() -> None:
    _, y = build().apply(torch.zeros(64, 1, 12, 12), torch.zeros(64).long(), 10, torch.Generator())
    assert int((y == 2).sum()) == 20


@pytest.mark.parametrize("attacker", range(4))
def test_images_too_small_for_the_whole_trigger_are_refused(attacker: int) -> None:
    """Also for attackers whose own bar would fit."""
    x, y = torch.zeros(4, 1, 3, 20), torch.zeros(4, dtype=torch.int64)
    with pytest.raises(ConfigurationError, match="4x10 pixels does not fit into 3x20"):
        attacks.build("dba").apply(x, y, 10, torch.Generator(), attacker)
