"""Rows that are assumed to be finite, and how passes detect that they are not."""

from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.robust import Rows, linalg
from rampart_fl.shared.robust.linalg import finite

pytestmark = pytest.mark.usefixtures("kernels")

Pass = Callable[[Rows], Tensor]
PASSES: dict[str, Pass] = {
    "norms": linalg.norms,
    "distances": lambda rows: linalg.norms(rows, torch.zeros(rows.dim)),
    "gram": linalg.gram,
    "geometry": linalg.squared_distances,
    "mean": lambda rows: linalg.combine(rows, torch.full((len(rows),), 0.25)),
}


def block(value: float = 0.5, at: int = 4000) -> Tensor:
    block_ND = torch.randn(4, 5000, generator=torch.Generator().manual_seed(3))
    block_ND[2, at] = value
    return block_ND


@pytest.mark.parametrize("name", PASSES)
def test_pass_over_assumed_finite_rows_raises_on_non_finite_numbers(name: str) -> None:
    for value, at in product((torch.nan, torch.inf, -torch.inf), (0, 4999)):
        rows = Rows.of(block(value, at), assume_finite=True)
        assert finite.assumed_finite(rows) and len(rows) == 4 and not rows.dropped
        with pytest.raises(linalg.NonFiniteRows):
            PASSES[name](rows)
        assert not linalg.all_finite(rows), (value, at)


@pytest.mark.parametrize("name", PASSES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pass_over_finite_rows_confirms_that_they_are_finite(name: str, dtype: torch.dtype) -> None:
    block_ND = block().to(dtype)
    rows, checked = Rows.of(block_ND, assume_finite=True), Rows.of(block_ND)
    assert torch.equal(PASSES[name](rows), PASSES[name](checked))
    assert not finite.assumed_finite(rows) and linalg.all_finite(rows)


@pytest.mark.parametrize("name", ["norms", "distances", "gram"])
def test_overflowing_sums_do_not_mark_finite_rows_as_non_finite(name: str) -> None:
    rows = Rows.of(torch.full((4, 30), 1e200, dtype=torch.float64), assume_finite=True)
    PASSES[name](rows)
    assert not finite.assumed_finite(rows) and linalg.all_finite(rows)


def test_pass_over_a_subset_does_not_confirm_that_all_rows_are_finite() -> None:
    rows = Rows.of(block(torch.nan), assume_finite=True)
    linalg.combine(rows, torch.tensor([0.5, 0.5, 0.0, 0.0]))
    linalg.norms(rows.keep([0, 1]))
    linalg.gram(rows.columns(slice(0, 100)))
    assert finite.assumed_finite(rows) and not linalg.all_finite(rows)
    with pytest.raises(linalg.NonFiniteRows):
        linalg.norms(rows.columns(slice(3000, 5000)))


def test_compiled_median_raises_on_non_finite_rows() -> None:
    assert linalg.all_finite(Rows.of(block(), assume_finite=True))
    for value in (torch.nan, torch.inf):
        rows = Rows.of(block(value), assume_finite=True)
        if linalg.backend() == "native":
            with pytest.raises(linalg.NonFiniteRows):
                linalg.median(rows.mixed(torch.eye(4, dtype=torch.float64)))
        else:
            linalg.median(rows)
        assert not linalg.all_finite(rows)


def test_norms_are_computed_once_and_cached_by_place_in_the_pool() -> None:
    rows = Rows.of(block()[[3, 0, 1, 2]], ids=["d", "a", "b", "c"])
    torch.testing.assert_close(linalg.norms(rows), block().double().norm(dim=1))
    assert torch.equal(linalg.norms(rows.keep([2, 0])), linalg.norms(rows)[[2, 0]])
    squares_N = torch.tensor([9.0, 1.0, 4.0, 16.0], dtype=torch.float64)
    rows.pool_statistics.squares_N = squares_N
    assert linalg.norms(rows).tolist() == [1, 2, 4, 3], "kept by place in the pool"
