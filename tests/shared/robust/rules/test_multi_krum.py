"""Multi-Krum, checked against the plain loops of Krum's tests."""

import pytest
import torch

from rampart_fl.shared.errors import ConfigurationError, PreconditionError
from rampart_fl.shared.robust import aggregate
from rampart_fl.shared.robust.rules import rules
from tests.shared.robust.rules.test_krum import LINE, by_hand


@pytest.mark.parametrize(("n", "f", "m"), [(9, 2, None), (9, 2, 1), (9, 2, 3), (9, 2, 9)])
def test_multi_krum_averages_the_m_rows_with_the_lowest_scores(
    n: int, f: int, m: int | None
) -> None:
    block_ND = torch.randn(n, 8, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    values = by_hand(block_ND, f)
    best = sorted(range(n), key=values.__getitem__)[: n - f if m is None else m]
    expected_D = block_ND[best].mean(dim=0)
    found_D = aggregate(block_ND, {"name": "multi_krum", "m": m}, f=f)
    torch.testing.assert_close(found_D, expected_D)


def test_claimed_weights_are_ignored() -> None:
    """A claimed count of 1e9 must not turn the mean of the chosen rows into its own row."""
    weighted = aggregate(LINE, "multi_krum", f=1, weights=[1e9, 1, 1, 1, 1])
    assert torch.equal(weighted, aggregate(LINE, "multi_krum", f=1))


def test_ties_go_to_the_lowest_id() -> None:
    square = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    two = {"name": "multi_krum", "m": 2}
    assert aggregate(square, two).tolist() == [1, 0]
    assert aggregate(square, two, ids=["d", "c", "b", "a"]).tolist() == [-1, 0]


def test_invalid_m_is_rejected() -> None:
    with pytest.raises(PreconditionError, match="n >= m = 6 rows: n=5, f=1"):
        aggregate(LINE, {"name": "multi_krum", "m": 6}, f=1)
    with pytest.raises(ConfigurationError, match="m"):
        rules.build("multi_krum", m=0)


def test_row_that_is_left_out_also_reduces_an_explicit_m() -> None:
    block_ND = torch.tensor([[0.0], [1.0], [2.0], [3.0], [4.0], [float("nan")]])
    assert aggregate(block_ND, {"name": "multi_krum", "m": 6}, f=1).item() == 2.0
