"""Minimum-diameter averaging, checked against all subsets."""

from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rampart_fl.shared.errors import PreconditionError
from rampart_fl.shared.robust import aggregate
from rampart_fl.shared.robust.rules.minimum_diameter_averaging import (
    StepLimit,
    has_vertex_cover,
    least_diameter_subset,
)


def by_hand(squared_MM: Tensor, f: int) -> list[int]:
    """The first subset of least diameter, in lexicographic order."""
    subsets = combinations(range(len(squared_MM)), len(squared_MM) - f)
    return list(min(subsets, key=lambda s: float(squared_MM[list(s)][:, list(s)].max())))


@pytest.mark.parametrize(("n", "f"), [(3, 1), (6, 0), (7, 2), (9, 4), (11, 3), (12, 5)])
def test_result_is_the_first_subset_of_least_diameter(n: int, f: int) -> None:
    for seed in range(5):
        points_MD = torch.randn(n, 3, generator=torch.Generator().manual_seed(seed + 50 * n))
        squared_MM = torch.cdist(points_MD.double(), points_MD.double()).square()
        squared_MM = (squared_MM + squared_MM.T) / 2
        assert least_diameter_subset(squared_MM, f, StepLimit(10_000))[0] == by_hand(squared_MM, f)


@given(st.lists(st.integers(0, 4), min_size=5, max_size=9), st.integers(0, 2))
@settings(deadline=None)
def test_ties_take_the_lowest_ids(values: list[int], f: int) -> None:
    points_M = torch.tensor(values, dtype=torch.float64)
    squared_MM = (points_M[:, None] - points_M).square()
    assert least_diameter_subset(squared_MM, f, StepLimit(10_000))[0] == by_hand(squared_MM, f)


@settings(deadline=None)
@given(st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6)).filter(lambda e: e[0] < e[1])))
def test_vertex_cover_is_found_if_and_only_if_one_exists(edges: set[tuple[int, int]]) -> None:
    graph = {v: sum(1 << (b if a == v else a) for a, b in edges if v in (a, b)) for v in range(7)}
    least = min(
        size
        for size in range(8)
        for cover in combinations(range(7), size)
        if all(a in cover or b in cover for a, b in edges)
    )
    assert [has_vertex_cover(graph, most, StepLimit(1000)) for most in range(8)] == [
        most >= least for most in range(8)
    ]


def test_large_pools_are_solved_without_enumerating_subsets() -> None:
    """There are C(100, 20) subsets. The hostile rows are far apart, so no two of them are kept."""
    draws = torch.Generator().manual_seed(3)
    block_ND = torch.randn(100, 40, generator=draws)
    block_ND[80:] *= 10
    found_D = aggregate(block_ND, "minimum_diameter_averaging", f=20)
    torch.testing.assert_close(found_D, block_ND[:80].mean(dim=0), atol=1e-6, rtol=1e-5)


def test_search_is_abandoned_at_the_step_limit() -> None:
    block_ND = torch.randn(60, 8, generator=torch.Generator().manual_seed(1))
    stage = {"name": "minimum_diameter_averaging", "most": 20}
    with pytest.raises(PreconditionError, match="found no result within 20 steps"):
        aggregate(block_ND, stage, f=25)
