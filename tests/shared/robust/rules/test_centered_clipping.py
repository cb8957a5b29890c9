"""Centred clipping, checked against a plain loop over several rounds."""

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.robust import Context, Rows, aggregate
from rampart_fl.shared.robust.rules import rules


def by_hand(block_ND: Tensor, centre_D: Tensor, tau: float, steps: int) -> Tensor:
    for _ in range(steps):
        moves = []
        for row_D in block_ND:
            offset_D = row_D - centre_D
            length = float(offset_D.norm())
            moves.append(offset_D * (min(1.0, tau / length) if length else 1.0))
        centre_D = centre_D + torch.stack(moves).mean(dim=0)
    return centre_D


def test_first_aggregate_is_clipped_to_length_tau() -> None:
    block_ND = torch.tensor([[3.0, 4.0]])
    assert aggregate(block_ND, {"name": "centered_clipping", "tau": 1}).tolist() == pytest.approx(
        [0.6, 0.8]
    )


@pytest.mark.parametrize("steps", [1, 5])
def test_each_aggregate_is_the_centre_of_the_next_round(steps: int) -> None:
    draws = torch.Generator().manual_seed(1)
    rule = rules.build("centered_clipping", tau=0.7, iterations=steps, f=1)
    state, centre_D = rule.init(6), torch.zeros(6, dtype=torch.float64)
    for _ in range(3):
        block_ND = torch.randn(5, 6, generator=draws, dtype=torch.float64)
        before_D, rows = centre_D, Rows.of(block_ND)
        result_D, state, report = rule.apply(rows, state, Context())
        centre_D = by_hand(block_ND, centre_D, 0.7, steps)
        shares_N = report.per_row["weight"]
        mixed_D = shares_N @ block_ND + (1 - shares_N.sum()) * before_D
        torch.testing.assert_close(result_D, mixed_D)
        torch.testing.assert_close(result_D, centre_D)
        result_D.zero_()
        torch.testing.assert_close(state.tensors["centre"], centre_D)


def test_default_tau_scales_with_the_rows() -> None:
    block_ND = torch.randn(7, 4, generator=torch.Generator().manual_seed(1))
    small_D = aggregate(block_ND, "centered_clipping", f=2)
    torch.testing.assert_close(aggregate(block_ND * 1e6, "centered_clipping", f=2), small_D * 1e6)


def test_single_row_moves_the_centre_by_at_most_tau_over_n() -> None:
    block_ND = torch.zeros(5, 3)
    block_ND[2] = 1e30
    result_D = aggregate(block_ND, {"name": "centered_clipping", "tau": 2.0}, f=1)
    assert float(result_D.norm()) == pytest.approx(2 / 5)
