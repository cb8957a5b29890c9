"""Symmetric flipping: the transition matrix within three standard errors."""

import pytest
import torch

from rampart_fl.shared.attacks.data import attacks


def flip(rate: float, y: torch.Tensor, classes: int) -> torch.Tensor:
    attack = attacks.build("symmetric_flip", rate=rate)
    return attack.apply(torch.zeros(len(y), 1), y, classes, torch.Generator().manual_seed(1))[1]


def test_transition_matrix_matches_the_rate() -> None:
    classes, each, rate = 5, 4000, 0.5
    y = torch.arange(classes).repeat_interleave(each)
    flipped = flip(rate, y, classes)
    other = rate / (classes - 1)
    for c in range(classes):
        shares = (torch.bincount(flipped[y == c], minlength=classes) / each).tolist()
        for k, share in enumerate(shares):
            expected = 1 - rate if k == c else other
            error = (expected * (1 - expected) / each) ** 0.5
            assert share == pytest.approx(expected, abs=3 * error)


def test_flipped_label_always_changes() -> None:
    y = torch.arange(3).repeat(200)
    assert bool((flip(1.0, y, 3) != y).all())


def test_labels_stay_if_there_is_only_one_class() -> None:
    assert flip(1.0, torch.zeros(4, dtype=torch.long), 1).tolist() == [0] * 4
