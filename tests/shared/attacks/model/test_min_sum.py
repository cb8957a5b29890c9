"""Min-sum by hand; `test_optimized.py` compares it with a brute-force search."""

from typing import Any

import pytest
import torch

from rampart_fl.shared.attacks import craft

KNOWN_BD = torch.tensor([[0.0], [1.0], [5.0]], dtype=torch.float64)
"""The mean is 2. The updates' sums of squared distances to all updates are 26, 17 and 41, and their
sums of distances are 6, 5 and 9."""


@pytest.mark.parametrize(
    ("options", "u"),
    [
        ({}, -1.0),  # 1 + 4 + 36 = 41
        ({"bound": "min"}, 1.0),  # 1 + 0 + 16 = 17
        ({"squared": False}, -1.0),  # 1 + 2 + 6 = 9
    ],
)
def test_sum_of_distances_reaches_its_limit(options: dict[str, Any], u: float) -> None:
    u_D = craft("min_sum", KNOWN_BD, n=5, m=2, **options)
    assert u_D.tolist() == pytest.approx([u])


@pytest.mark.slow
@pytest.mark.parametrize("perturbation", ["std", "unit", "sign"])
@pytest.mark.parametrize("copies", [1, 2])
def test_two_updates_give_their_mean_if_no_other_point_is_feasible(
    perturbation: str, copies: int
) -> None:
    """Between two updates, the sum of distances equals the limit; rounding must not matter."""
    for seed in range(20):
        pair_2D = torch.randn(2, 50, generator=torch.Generator().manual_seed(seed))
        options = {"squared": False, "perturbation": perturbation}
        u_D = craft("min_sum", pair_2D.repeat(copies, 1), n=9, m=2, **options)
        torch.testing.assert_close(u_D, pair_2D.mean(dim=0), rtol=0, atol=1e-3)


@pytest.mark.parametrize("bound", ["max", "min"])
def test_update_equals_the_closed_form(bound: str) -> None:
    draws = torch.Generator().manual_seed(3)
    known_BD = torch.randn(9, 5, generator=draws, dtype=torch.float64)
    mean_D, p_D = known_BD.mean(dim=0), -known_BD.std(dim=0)
    radius = getattr((known_BD - mean_D).norm(dim=1), bound)()
    u_D = craft("min_sum", known_BD, n=12, m=3, bound=bound)
    expected_D = mean_D + float(radius / p_D.norm()) * p_D
    torch.testing.assert_close(u_D, expected_D, rtol=1e-9, atol=1e-9)
