"""The mean around the median, checked against sorting by distance."""

import statistics
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rampart_fl.shared.robust import aggregate


def by_hand(values: list[float], keep: int) -> float:
    exact = [Fraction(value) for value in values]
    middle = statistics.median(exact)
    nearest = sorted(exact, key=lambda x: (abs(x - middle), x))[:keep]
    return float(sum(nearest) / keep)


def test_mean_around_median_reproduces_the_worked_example() -> None:
    block_ND = torch.tensor([[0.0], [1.0], [2.1], [3.3], [100.0]])
    assert aggregate(block_ND, "mean_around_median", f=1).item() == pytest.approx(1.6)


@given(
    st.lists(st.integers(-8, 8), min_size=5, max_size=12),
    st.integers(0, 2),
    st.sampled_from([1.0, 1e-3, 1e30]),
)
@settings(deadline=None)
def test_ties_take_the_lower_value(values: list[int], f: int, scale: float) -> None:
    block_ND = torch.tensor([[value * scale] for value in values])
    expected = by_hand(block_ND[:, 0].tolist(), len(values) - f)
    result = aggregate(block_ND, "mean_around_median", f=f).item()
    assert result == pytest.approx(expected, rel=1e-6, abs=1e-7 * scale)


@pytest.mark.parametrize("n", [5, 20, 47])
def test_coordinates_are_independent(n: int) -> None:
    block_ND = torch.randn(n, 29, generator=torch.Generator().manual_seed(n))
    expected = [by_hand(column, n - n // 5) for column in block_ND.T.tolist()]
    result = aggregate(block_ND, "mean_around_median", f=n // 5).tolist()
    assert result == pytest.approx(expected, rel=1e-5, abs=1e-6)
