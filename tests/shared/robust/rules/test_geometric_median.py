"""The geometric median, checked against its optimality condition and a plain Weiszfeld loop."""

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.robust import Rows, aggregate, linalg
from rampart_fl.shared.robust.rules.geometric_median import GeometricMedian


def weiszfeld(block_ND: Tensor, masses_N: Tensor, nu: float, steps: int) -> Tensor:
    """Weiszfeld steps on vectors, starting from the weighted mean."""
    z_D = masses_N @ block_ND / masses_N.sum()
    for _ in range(steps):
        shares_N = masses_N / (block_ND - z_D).norm(dim=1).clamp(min=nu)
        z_D = shares_N @ block_ND / shares_N.sum()
    return z_D


def test_geometric_median_and_rfa_reproduce_worked_examples() -> None:
    square = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    assert aggregate(square, "geometric_median").tolist() == pytest.approx([0.5, 0.5])
    line = torch.tensor([[0.0], [1.0], [10.0]], dtype=torch.float64)
    assert aggregate(line, "geometric_median").item() == pytest.approx(1, abs=1e-5)
    assert aggregate(line, {"name": "rfa", "iterations": 3}).item() == pytest.approx(
        1.19565, abs=1e-5
    )
    assert aggregate(line[:2], "geometric_median").item() == 0.5


def test_point_with_more_than_half_of_the_mass_is_the_geometric_median() -> None:
    block_ND = torch.tensor([[3.0, 4.0]] * 4 + [[90.0, -7.0], [0.0, 1e6], [-5.0, 2.0]])
    assert aggregate(block_ND, "geometric_median").tolist() == pytest.approx([3, 4], abs=1e-5)
    weights = [1, 1, 9, 1]
    heavy = torch.tensor([[0.0, 0.0], [5.0, 0.0], [1.0, 1.0], [0.0, 7.0]])
    stage = {"name": "geometric_median", "weighted": True}
    result = aggregate(heavy, stage, weights=weights)
    assert result.tolist() == pytest.approx([1, 1], abs=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_unit_vectors_from_the_result_to_the_rows_sum_to_zero(seed: int) -> None:
    draws = torch.Generator().manual_seed(seed)
    block_ND = torch.randn(12, 30, generator=draws, dtype=torch.float64)
    offsets_ND = block_ND - aggregate(block_ND, "geometric_median")
    pull_D = (offsets_ND / offsets_ND.norm(dim=1, keepdim=True)).sum(dim=0)
    assert float(pull_D.norm()) < 1e-6


@pytest.mark.parametrize("steps", [1, 4, 20])
def test_steps_on_coefficients_equal_weiszfeld_steps_on_vectors(steps: int) -> None:
    draws = torch.Generator().manual_seed(7)
    block_ND = torch.randn(9, 15, generator=draws, dtype=torch.float64)
    masses_N = torch.rand(9, generator=draws, dtype=torch.float64) + 0.1
    stage = {"name": "rfa", "iterations": steps, "tolerance": 0}
    found_D = aggregate(block_ND, stage, weights=masses_N)
    torch.testing.assert_close(found_D, weiszfeld(block_ND, masses_N, 1e-5, steps))


def test_four_steps_suffice_against_a_huge_row() -> None:
    """If they started from the plain mean, four steps would still end at 1e27."""
    block_ND = torch.randn(9, 5, generator=torch.Generator().manual_seed(1))
    block_ND[8] = 1e30
    assert float(aggregate(block_ND, "rfa").norm()) < 3


def test_weights_are_ignored_by_default() -> None:
    block_ND = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    weights = [1e9, 1, 1, 1, 1]
    plain_D = aggregate(block_ND, "geometric_median")
    assert torch.equal(aggregate(block_ND, "geometric_median", weights=weights), plain_D)


def test_coefficients_sum_to_one_and_infinitely_far_rows_get_zero() -> None:
    block_ND = torch.randn(7, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    block_ND[3] = 1e200
    geometry = linalg.geometry(Rows.of(block_ND))
    weights_M, _ = GeometricMedian().weights(geometry, torch.ones(7, dtype=torch.float64))
    assert weights_M[3] == 0 and float(weights_M.sum()) == pytest.approx(1)
