"""Pair flipping: the transition matrix within three standard errors."""

import pytest
import torch

from rampart_fl.shared.attacks.data import attacks


@pytest.mark.parametrize("rate", [0.2, 0.5])
def test_transition_matrix_matches_the_rate(rate: float) -> None:
    classes, each = 5, 4000
    y = torch.arange(classes).repeat_interleave(each)
    _, flipped = attacks.build("pair_flip", rate=rate).apply(
        torch.zeros(len(y), 1), y, classes, torch.Generator().manual_seed(1)
    )
    tolerance = 3 * (rate * (1 - rate) / each) ** 0.5
    for c in range(classes):
        shares = torch.bincount(flipped[y == c], minlength=classes) / each
        expected = [0.0] * classes
        expected[c], expected[(c + 1) % classes] = 1 - rate, rate
        assert shares.tolist() == pytest.approx(expected, abs=tolerance)
