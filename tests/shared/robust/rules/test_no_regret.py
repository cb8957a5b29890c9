"""No-Regret: the paper's steps, the prefilter, the cap, and the scale-free defaults."""

import numpy as np
import pytest
import torch
from torch import Tensor

from rampart_fl.shared.robust import Context, Report, Rows, State, aggregate
from rampart_fl.shared.robust.rules.no_regret import NoRegret


def report(block_ND: Tensor, **parameters: float) -> Report:
    return NoRegret(**parameters).apply(Rows.of(block_ND), State(), Context())[2]


def project(q: np.ndarray, cap: float) -> np.ndarray:
    """Water-filling by repeated capping."""
    capped = np.zeros(len(q), bool)
    while True:
        out = np.where(capped, cap, 0.0)
        out[~capped] = q[~capped] * (1 - capped.sum() * cap) / q[~capped].sum()
        over = ~capped & (out > cap * (1 + 1e-12))
        if not over.any():
            return out
        capped |= over


def by_covariance(
    block: np.ndarray, f: int, radius: float, sigma2: float, eta: float, xi: float, steps: int
) -> np.ndarray:
    """Algorithm 1 on the dense covariance."""
    m, dim = block.shape
    far = (np.linalg.norm(block[:, None] - block[None], axis=2) > radius).sum(axis=1)
    left = np.flatnonzero(far <= 2 * f)
    epsilon, points = f / m, block[left]
    q = np.full(len(left), 1 / len(left))
    for _ in range(steps):
        centred = points - q @ points
        values, vectors = np.linalg.eigh((centred.T * q) @ centred)
        if values[-1] <= xi:
            break
        g = (centred @ vectors[:, -1]) ** 2
        factor = np.maximum(1 - eta * epsilon / (2 * sigma2 * dim) * g, 0)
        q = project(q * factor, 1 / ((1 - epsilon) * len(left)))
    out = np.zeros(m)
    out[left] = q
    return out


@pytest.mark.parametrize("seed", range(8))
def test_weights_equal_the_paper_s_algorithm_on_the_dense_covariance(seed: int) -> None:
    draws = torch.Generator().manual_seed(seed)
    block_ND = torch.randn(13, 4, generator=draws, dtype=torch.float64)
    block_ND[:3] += 3
    block_ND[0] += 40
    constants = {"radius": 12.0, "sigma2": 1.0, "eta": 0.9, "xi": 1.2}
    expected = by_covariance(block_ND.numpy(), 3, steps=25, **constants)
    outcome = report(block_ND, f=3, max_iterations=25, **constants)
    np.testing.assert_allclose(outcome.per_row["weight"].numpy(), expected, rtol=1e-8, atol=1e-12)
    assert outcome.per_row["weight"][0] == 0


def test_no_regret_equals_the_mean_if_f_is_zero() -> None:
    block_ND = torch.tensor([[0.0], [0.0], [9.0]])
    assert float(aggregate(block_ND, "no_regret")) == 3


def test_default_prefilter_radius_keeps_the_majority_and_removes_outliers() -> None:
    points_M = torch.tensor([0.0, 1.0, 2.0, 3.0, 100.0], dtype=torch.float64)
    distances_MM = (points_M[:, None] - points_M).square()
    # The smallest ball with 4 rows has radius 2; the row at 100 has 4 others beyond 4.
    assert NoRegret(f=1).prefilter(distances_MM, 1).tolist() == [True] * 4 + [False]
    assert not NoRegret(f=1, radius=0.5).prefilter(distances_MM, 1).any()
    outcome = report(points_M[:, None], f=1, radius=0.5)
    assert float(outcome.per_row["weight"].sum()) == pytest.approx(1), "never nobody"


def test_no_weight_exceeds_its_cap() -> None:
    draws = torch.Generator().manual_seed(3)
    block_ND = torch.randn(12, 3, generator=draws, dtype=torch.float64)
    block_ND[:4] += 6
    weights_M = report(block_ND, f=4, radius=1e9).per_row["weight"]
    assert float(weights_M.max()) <= 1 / 8 + 1e-12 and float(weights_M.sum()) == pytest.approx(1)
    assert float(weights_M[:4].sum()) < 0.1


@pytest.mark.parametrize("f", [2, 4])
def test_hostile_rows_of_every_size_lose_their_influence(f: int) -> None:
    # If f >= n/3, the prefilter cannot separate the groups, so the steps must separate them.
    honest_ND = torch.randn(9 - f, 20, generator=torch.Generator().manual_seed(1)).double()
    sizes = torch.tensor([1e30, 1e18, 1e6, 1e2], dtype=torch.float64)[:f, None]
    block_ND = torch.cat([honest_ND, torch.ones(f, 20).double() * sizes])
    result_D = aggregate(block_ND, "no_regret", f=f)
    assert float((result_D - honest_ND.mean(dim=0)).norm()) < 6
    assert report(block_ND, f=f).values["converged"] == 1


def test_rows_without_outliers_give_the_mean() -> None:
    block_ND = torch.randn(20, 400, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(aggregate(block_ND, "no_regret", f=4), block_ND.mean(dim=0))
    assert float(aggregate(torch.full((5, 1), 3.0), "no_regret", f=2)) == 3


def test_report_flags_missing_convergence() -> None:
    block_ND = torch.tensor([[0.0], [1.0], [2.0], [3.0], [4.0]])
    outcome = report(block_ND, f=1, xi=1e-6, max_iterations=3)
    assert outcome.values == {"iterations": 3, "converged": 0}
