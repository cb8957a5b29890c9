"""The median, checked against the standard library."""

import statistics

import pytest
import torch

from rampart_fl.shared.robust import aggregate


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 13, 33, 50])
def test_every_coordinate_is_the_median_of_its_column(n: int) -> None:
    block_ND = torch.randn(n, 37, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    expected = [statistics.median(column) for column in block_ND.T.tolist()]
    assert aggregate(block_ND, "median").tolist() == pytest.approx(expected, abs=1e-15)


def test_median_of_an_even_number_of_rows_averages_the_middle_two() -> None:
    """torch.median returns the lower of the two: 2 instead of 2.5."""
    block_ND = torch.tensor([[1.0], [2.0], [3.0], [100.0]])
    assert aggregate(block_ND, "median").item() == 2.5


def test_median_accepts_more_than_2_to_the_24_coordinates() -> None:
    """torch.quantile, which other implementations use, rejects more than 2^24 numbers."""
    block_ND = torch.arange(3.0)[:, None].expand(3, 2**24 + 5)
    assert bool((aggregate(block_ND, "median") == 1).all())
