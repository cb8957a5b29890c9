"""The weighted mean, checked against plain sums."""

import pytest
import torch

from rampart_fl.shared.robust import Context, Rows, State, aggregate
from rampart_fl.shared.robust.rules import rules


def test_weighted_mean_equals_hand_computed_values() -> None:
    """(3 · 0 + 1 · 4 + 4 · 1) / 8 and (3 · 8 + 1 · 0 + 4 · 2) / 8."""
    block_ND = torch.tensor([[0.0, 8.0], [4.0, 0.0], [1.0, 2.0]])
    assert aggregate(block_ND, "weighted_mean", weights=[3, 1, 4]).tolist() == [1.0, 4.0]
    rows = Rows.of(block_ND, weights=[3, 1, 4])
    _, _, report = rules.build("weighted_mean").apply(rows, State(), Context())
    assert report.column("weight") == {"0": 3 / 8, "1": 1 / 8, "2": 4 / 8}


@pytest.mark.parametrize("n", [1, 2, 5, 33])
def test_every_coordinate_is_the_weighted_mean_of_its_column(n: int) -> None:
    draws = torch.Generator().manual_seed(n)
    block_ND = torch.randn(n, 17, generator=draws, dtype=torch.float64)
    weights = torch.randint(1, 100, (n,), generator=draws).tolist()
    expected = [
        sum(w * x for w, x in zip(weights, column, strict=True)) / sum(weights)
        for column in block_ND.T.tolist()
    ]
    result_D = aggregate(block_ND, "weighted_mean", weights=weights)
    assert result_D.tolist() == pytest.approx(expected, abs=1e-14)


def test_single_row_can_move_the_mean_arbitrarily_far() -> None:
    block_ND = torch.tensor([[0.0]] * 9 + [[1e6]])
    assert aggregate(block_ND, "weighted_mean").item() == pytest.approx(1e5)
