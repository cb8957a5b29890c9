"""The trimmed mean, checked against sorted lists."""

import pytest
import torch

from rampart_fl.shared.errors import ConfigurationError, PreconditionError
from rampart_fl.shared.robust import aggregate
from rampart_fl.shared.robust.rules import rules


def by_hand(block_ND: torch.Tensor, b: int) -> list[float]:
    columns = [sorted(column) for column in block_ND.tolist()]
    return [sum(column[b : len(column) - b]) / (len(column) - 2 * b) for column in columns]


@pytest.mark.parametrize(("n", "f"), [(1, 0), (3, 1), (6, 0), (6, 2), (20, 6), (33, 7), (60, 29)])
def test_b_values_are_trimmed_on_each_side(n: int, f: int) -> None:
    block_ND = torch.randn(n, 41, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    result = aggregate(block_ND, "trimmed_mean", f=f).tolist()
    assert result == pytest.approx(by_hand(block_ND.T, f), abs=1e-14)


def test_trimmed_mean_reproduces_the_worked_example() -> None:
    block_ND = torch.tensor([[0.0], [1.0], [2.0], [3.0], [100.0]])
    assert aggregate(block_ND, "trimmed_mean", f=1).item() == 2
    assert aggregate(block_ND, "trimmed_mean").item() == pytest.approx(21.2)


def test_half_f_trims_half_of_f_on_each_side_as_in_fedcap() -> None:
    block_ND = torch.tensor([[0.0], [1.0], [2.0], [3.0], [100.0], [7.0], [8.0]])
    half = {"name": "trimmed_mean", "b": "half_f"}
    assert torch.equal(
        aggregate(block_ND, half, f=3), aggregate(block_ND, {"name": "trimmed_mean", "b": 1})
    )


def test_trimmed_huge_value_causes_no_rounding_error() -> None:
    """Other implementations subtract the extremes from the sum, which gives -0.5: 1e20 swallows the
    honest values' digits."""
    block_ND = torch.tensor([[1.0], [2.0], [3.0], [1e20]])
    assert aggregate(block_ND, "trimmed_mean", f=1).item() == 2.5


def test_trimming_all_rows_is_rejected() -> None:
    """Other implementations return 0 or NaN for an empty slice."""
    with pytest.raises(PreconditionError, match="n > 2b = 4 rows: n=4, f=2"):
        aggregate(torch.zeros(4, 2), "trimmed_mean", f=2)
    with pytest.raises(ConfigurationError):
        rules.build("trimmed_mean", b=-1)


def test_dropped_row_reduces_b() -> None:
    block_ND = torch.tensor([[1.0], [2.0], [30.0], [float("nan")]])
    assert aggregate(block_ND, "trimmed_mean", f=1).item() == 11


def test_row_that_is_left_out_also_reduces_an_explicit_b() -> None:
    block_ND = torch.tensor([[1.0], [2.0], [3.0], [4.0], [30.0], [40.0], [float("nan")]])
    assert aggregate(block_ND, {"name": "trimmed_mean", "b": 3}, f=3).item() == 3.5
