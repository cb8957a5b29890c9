"""Divide and conquer (DnC), checked against numpy's SVD and by hand."""

import numpy as np
import pytest
import torch

from rampart_fl.shared.errors import PreconditionError
from rampart_fl.shared.robust import Context, Rows, State, aggregate
from rampart_fl.shared.robust.rules.dnc import DnC


def shifted(seed: int, n: int = 10, f: int = 2, dim: int = 30) -> torch.Tensor:
    block_ND = torch.randn(n, dim, generator=torch.Generator().manual_seed(seed))
    block_ND[:f] += 5
    return block_ND


@pytest.mark.parametrize("seed", range(20))
def test_two_shifted_rows_of_ten_are_removed_for_every_seed(seed: int) -> None:
    block_ND = shifted(seed)
    result_D = aggregate(block_ND, {"name": "dnc", "sample": 25}, f=2, context=Context(seed=seed))
    torch.testing.assert_close(result_D, block_ND[2:].mean(dim=0))


@pytest.mark.parametrize("seed", range(5))
def test_scores_are_squared_projections_on_the_top_right_singular_vector(seed: int) -> None:
    block_ND = torch.randn(9, 12, generator=torch.Generator().manual_seed(seed)).double()
    centred = block_ND.numpy() - block_ND.numpy().mean(axis=0)
    along = (centred @ np.linalg.svd(centred)[2][0]) ** 2
    _, _, report = DnC(f=3, iterations=1).apply(Rows.of(block_ND), State(), Context())
    np.testing.assert_allclose(report.per_row["score"].numpy(), along, rtol=1e-9)
    kept = set(np.argsort(along, kind="stable")[:6])
    assert {i for i, weight in enumerate(report.per_row["weight"]) if weight} == kept


def test_no_update_if_the_intersection_of_kept_rows_is_empty() -> None:
    # Each coordinate removes another row; with one coordinate per draw, finally none is left.
    block_ND = torch.eye(4) * 9
    stage = {"name": "dnc", "sample": 1, "iterations": 60}
    assert not aggregate(block_ND, stage, f=1).any()


def test_c_scales_the_number_of_removed_rows() -> None:
    block_ND = torch.tensor([[0.0], [0.1], [0.2], [85.0], [90.0]])
    assert float(aggregate(block_ND, {"name": "dnc", "c": 2.0}, f=1)) == pytest.approx(0.1)
    with pytest.raises(PreconditionError, match="n=5, f=5"):
        aggregate(block_ND, "dnc", f=5)


def test_dnc_equals_the_mean_if_f_is_zero() -> None:
    block_ND = shifted(1)
    torch.testing.assert_close(aggregate(block_ND, "dnc", f=0), block_ND.mean(dim=0))


def test_sampled_coordinates_vary_by_round_and_are_reproducible() -> None:
    block_ND = torch.randn(8, 500, generator=torch.Generator().manual_seed(1))
    stage = {"name": "dnc", "sample": 3, "iterations": 1}
    results = [aggregate(block_ND, stage, f=2, context=Context(round=r, seed=4)) for r in range(6)]
    assert any(not torch.equal(results[0], other) for other in results[1:])
    assert torch.equal(results[3], aggregate(block_ND, stage, f=2, context=Context(3, 4)))


def test_huge_row_masks_a_large_row() -> None:
    # Relative to the mean 19.06, the row at 0 is further away than the row at 5. For this reason,
    # the catalogue promises nothing against rows of different sizes.
    block_ND = torch.tensor([[0.0], [0.1], [0.2], [5.0], [90.0]])
    assert float(aggregate(block_ND, "dnc", f=2)) == pytest.approx((0.1 + 0.2 + 5) / 3)


def test_only_equal_hostile_rows_have_bounded_influence() -> None:
    """Two opposite rows determine the direction, and hide a third row that is orthogonal to it."""
    honest_ND = torch.randn(12, 8, generator=torch.Generator().manual_seed(1))
    far_FD = 1e4 * torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]]) @ torch.eye(2, 8)
    equal_D = aggregate(torch.cat([far_FD[:1].repeat(3, 1), honest_ND]), "dnc", f=3)
    torch.testing.assert_close(equal_D, honest_ND.mean(dim=0))
    assert float(aggregate(torch.cat([far_FD, honest_ND]), "dnc", f=3).norm()) > 500


def test_rounding_of_c_times_f_does_not_keep_an_additional_row() -> None:
    """0.58 · 50 is 29, but in float64 it is slightly less."""
    block_ND = torch.randn(101, 20, generator=torch.Generator().manual_seed(0))
    _, _, report = DnC(f=50, c=0.58).apply(Rows.of(block_ND), State(), Context())
    assert int((report.per_row["weight"] == 0).sum()) == 29
