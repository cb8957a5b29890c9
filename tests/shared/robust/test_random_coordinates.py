"""Randomly drawn coordinates are distinct, uniformly distributed and cheap to draw."""

import pytest
import torch

from rampart_fl.shared.robust import Context
from rampart_fl.shared.robust.random_coordinates import coordinates


@pytest.mark.parametrize(("dim", "count"), [(10, 9), (10, 3), (1000, 400), (10**7, 1000)])
def test_coordinates_are_distinct_and_ascending(dim: int, count: int) -> None:
    drawn = coordinates(Context(seed=3), "x", dim, count)
    assert drawn is not None and len(drawn) == count
    assert (drawn.diff() > 0).all() and int(drawn[0]) >= 0 and int(drawn[-1]) < dim


def test_drawing_all_coordinates_returns_none() -> None:
    assert coordinates(Context(), "x", 10, 10) is None
    assert coordinates(Context(), "x", 10, 11) is None


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 5])
def test_coordinates_are_drawn_uniformly(count: int) -> None:
    counts = torch.zeros(8)
    for seed in range(4000):
        drawn = coordinates(Context(seed=seed), "x", 8, count)
        assert drawn is not None
        counts[drawn] += 1
    share = count / 8
    sigma = (4000 * share * (1 - share)) ** 0.5
    assert ((counts - 4000 * share).abs() < 4.5 * sigma).all()
