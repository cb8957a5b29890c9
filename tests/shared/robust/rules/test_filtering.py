"""Filtering: an example by hand, the paper's loop, and the stopping criteria."""

import numpy as np
import pytest
import torch
from torch import Tensor

from rampart_fl.shared.errors import PreconditionError
from rampart_fl.shared.robust import Context, Report, Rows, State, aggregate
from rampart_fl.shared.robust.rules.filtering import Filtering


def report(block_ND: Tensor, **parameters: float) -> Report:
    return Filtering(**parameters).apply(Rows.of(block_ND), State(), Context())[2]


def by_covariance(block: np.ndarray, f: int, xi: float) -> np.ndarray:
    """The paper's loop on the dense covariance."""
    q = np.full(len(block), 1 / len(block))
    while True:
        centred = block - q @ block
        values, vectors = np.linalg.eigh((centred.T * q) @ centred)
        if values[-1] <= xi:
            return q
        g = np.where(q > 0, (centred @ vectors[:, -1]) ** 2, 0)
        lowered = q * (1 - g / g.max())
        if (lowered > 0).sum() < len(block) - 2 * f:
            return q
        q = lowered / lowered.sum()


def test_filtering_removes_the_single_outlier() -> None:
    block_ND = torch.tensor([[0.0], [0.0], [0.0], [0.0], [10.0]])
    outcome = report(block_ND, f=1)
    assert outcome.per_row["weight"].tolist() == [0.25, 0.25, 0.25, 0.25, 0]
    assert outcome.values == {"iterations": 1, "converged": 1}
    assert float(aggregate(block_ND, "filtering", f=1)) == 0


@pytest.mark.parametrize("seed", range(12))
def test_weights_equal_the_loop_on_the_dense_covariance(seed: int) -> None:
    draws = torch.Generator().manual_seed(seed)
    block_ND = torch.randn(11, 6, generator=draws, dtype=torch.float64)
    block_ND[:3] = block_ND[:3] * 3 + 4
    expected = by_covariance(block_ND.numpy(), 3, 1.5)
    outcome = report(block_ND, f=3, xi=1.5)
    np.testing.assert_allclose(outcome.per_row["weight"].numpy(), expected, rtol=1e-8, atol=1e-12)


def test_hostile_rows_of_every_size_are_removed() -> None:
    honest_ND = torch.randn(9, 20, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    hostile_ND = torch.ones(4, 20).double() * torch.tensor([1e30, 1e18, 1e6, 1e2])[:, None]
    outcome = report(torch.cat([honest_ND, hostile_ND]), f=4)
    assert (outcome.per_row["weight"][9:] == 0).all() and (outcome.per_row["weight"][:9] > 0).all()


def test_rows_without_outliers_give_the_mean() -> None:
    block_ND = torch.randn(20, 400, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(aggregate(block_ND, "filtering", f=4), block_ND.mean(dim=0))
    torch.testing.assert_close(aggregate(9 * block_ND, "filtering"), 9 * block_ND.mean(dim=0))
    assert float(aggregate(torch.full((5, 1), 3.0), "filtering", f=2)) == 3


def test_at_most_2f_rows_are_removed() -> None:
    block_ND = torch.tensor([[0.0], [1.0], [3.0], [9.0], [27.0], [81.0], [243.0]])
    outcome = report(block_ND, f=1, xi=1e-9)
    assert int((outcome.per_row["weight"] > 0).sum()) == 5
    assert outcome.values == {"iterations": 2, "converged": 0}


def test_more_than_2f_rows_may_be_removed_without_the_limit() -> None:
    block_ND = torch.tensor([[0.0], [1.0], [3.0], [9.0], [27.0], [81.0], [243.0]])
    outcome = report(block_ND, f=1, xi=1e-9, limited=False)
    assert int((outcome.per_row["weight"] > 0).sum()) < 5
    assert outcome.values["converged"] == 1
    two_ND = torch.tensor([[-1.0], [1.0], [-1.0], [1.0]])  # All are equally far from the mean.
    outcome = report(two_ND, f=1, xi=1e-9, limited=False)
    assert outcome.per_row["weight"].tolist() == [0.25] * 4
    assert outcome.values["converged"] == 0


def test_filtering_is_equivariant_to_scaling_and_translation() -> None:
    draws = torch.Generator().manual_seed(5)
    block_ND = torch.randn(12, 5, generator=draws, dtype=torch.float64)
    block_ND[:3] += 7
    once_D = aggregate(block_ND, "filtering", f=3)
    torch.testing.assert_close(aggregate(1e3 * block_ND + 5, "filtering", f=3), 1e3 * once_D + 5)


def test_blocks_of_coordinates_are_filtered_independently() -> None:
    draws = torch.Generator().manual_seed(6)
    block_ND = torch.randn(9, 10, generator=draws)
    block_ND[0, :4] += 50
    block_ND[1, 4:] += 50
    whole = {"name": "filtering", "block_size": 4}
    expected_D = torch.cat(
        [aggregate(block_ND[:, a:b], "filtering", f=1) for a, b in [(0, 4), (4, 8), (8, 10)]]
    )
    torch.testing.assert_close(aggregate(block_ND, whole, f=1), expected_D)
    assert float(aggregate(block_ND, whole, f=1).abs().max()) < 3
    wide = {"name": "filtering", "block_size": 10}
    assert torch.equal(aggregate(block_ND, wide, f=1), aggregate(block_ND, "filtering", f=1))


def test_too_few_rows_are_rejected() -> None:
    with pytest.raises(PreconditionError, match="n=4, f=2"):
        aggregate(torch.ones(4, 1), "filtering", f=2)
