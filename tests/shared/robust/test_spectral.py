"""Spectra of weighted rows against dense float64 algebra."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rampart_fl.shared.robust import aggregate, spectral


def apart(points_MD: torch.Tensor) -> torch.Tensor:
    return (points_MD[:, None] - points_MD[None]).square().sum(dim=2)


@given(st.integers(2, 9), st.integers(1, 6), st.integers(0, 10_000))
def test_dual_gives_the_top_eigenpair_of_the_covariance(m: int, dim: int, seed: int) -> None:
    draws = torch.Generator().manual_seed(seed)
    points_MD = torch.randn(m, dim, generator=draws, dtype=torch.float64)
    weights_M = torch.rand(m, generator=draws, dtype=torch.float64)
    weights_M /= weights_M.sum()
    centred = (points_MD - weights_M @ points_MD).numpy()
    values, vectors = np.linalg.eigh((centred.T * weights_M.numpy()) @ centred)
    spectrum = spectral.top(apart(points_MD), weights_M)
    assert spectrum.variance == pytest.approx(values[-1], rel=1e-9)
    if dim == 1 or values[-1] > values[-2] * 1.01:
        np.testing.assert_allclose(
            spectrum.along_M.numpy(), (centred @ vectors[:, -1]) ** 2, rtol=1e-6, atol=1e-12
        )


def test_rows_with_zero_weight_are_ignored() -> None:
    points_MD = torch.tensor([[0.0], [2.0], [1e30]], dtype=torch.float64)
    weights_M = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64)
    spectrum = spectral.top(apart(points_MD), weights_M)
    assert spectrum.variance == pytest.approx(1)
    assert spectrum.along_M.tolist() == pytest.approx([1, 1, 0])


def test_identical_rows_have_zero_variance() -> None:
    spectrum = spectral.top(torch.zeros(3, 3).double(), torch.full((3,), 1 / 3).double())
    assert spectrum.variance == 0 and not spectrum.along_M.any()


def test_smallest_ball_contains_the_majority() -> None:
    points_MD = torch.tensor([[0.0], [1.0], [2.0], [50.0], [51.0]], dtype=torch.float64)
    radius2, kept = spectral.nearest(apart(points_MD), 3)
    assert radius2 == 1 and kept.tolist() == [0, 1, 2]
    assert spectral.honest_variance(apart(points_MD), 3) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("weights", "cap", "expected"),
    [
        ([0.26, 0.25, 0.25, 0.24], 0.3125, [0.26, 0.25, 0.25, 0.24]),
        ([1.0] * 5, 0.25, [0.2] * 5),
        ([0.7, 0.1, 0.1, 0.1], 1 / 3, [1 / 3, 2 / 9, 2 / 9, 2 / 9]),
        ([0.7, 0.1, 0.1, 0.1], 0.25, [0.25] * 4),
        ([1.0, 0.0, 0.0, 0.0], 0.3, [1.0, 0.0, 0.0, 0.0]),
        ([0.5, 0.5, 0.0, 0.0], 0.4, [0.5, 0.5, 0.0, 0.0]),
    ],
)
def test_capped_projection_matches_known_results(
    weights: list[float], cap: float, expected: list[float]
) -> None:
    projected = spectral.capped_simplex(torch.tensor(weights, dtype=torch.float64), cap)
    torch.testing.assert_close(projected, torch.tensor(expected, dtype=torch.float64))


@given(st.integers(2, 12), st.floats(0, 0.45), st.integers(0, 10_000))
def test_capped_projection_is_the_nearest_point_in_kl(m: int, share: float, seed: int) -> None:
    draws = torch.Generator().manual_seed(seed)
    weights_M = torch.rand(m, generator=draws, dtype=torch.float64).pow(4) + 1e-9
    cap = 1 / ((1 - share) * m)
    projected_M = spectral.capped_simplex(weights_M, cap)
    assert float(projected_M.sum()) == pytest.approx(1) and float(projected_M.max()) <= cap + 1e-12
    # Bisection for the scale: an independent way to find the same water level.
    low, high = 0.0, 1e12
    for _ in range(200):
        middle = (low + high) / 2
        if float((middle * weights_M).clamp(max=cap).sum()) < 1:
            low = middle
        else:
            high = middle
    torch.testing.assert_close(projected_M, (high * weights_M).clamp(max=cap), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("rule", ["filtering", "no_regret", "dnc"])
def test_rows_whose_distances_overflow_float64_are_excluded(rule: str) -> None:
    honest_ND = torch.randn(7, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    block_ND = torch.cat([honest_ND, torch.full((2, 5), 1e300, dtype=torch.float64)])
    result_D = aggregate(block_ND, rule, f=2)
    assert float((result_D - honest_ND.mean(dim=0)).norm()) < 3


@pytest.mark.parametrize("n", [1, 2, 15, 120])
def test_lanczos_agrees_with_a_full_eigendecomposition(n: int) -> None:
    for seed in range(5):
        draws = torch.Generator().manual_seed(seed)
        points_ND = torch.randn(n, 3 * n, generator=draws, dtype=torch.float64)
        points_ND[: n // 4] *= 10.0**seed
        gram_NN = points_ND @ points_ND.T
        result = spectral.lanczos(gram_NN)
        assert result is not None
        values_N, vectors_NN = torch.linalg.eigh(gram_NN)
        assert result[0] == pytest.approx(float(values_N[-1]), rel=1e-10)
        assert abs(float(result[1] @ vectors_NN[:, -1])) == pytest.approx(1, abs=1e-8)


def test_lanczos_handles_rank_one_and_zero_matrices() -> None:
    ones_N = torch.ones(40, dtype=torch.float64)
    value, vector_N = spectral.lanczos(torch.outer(ones_N, ones_N)) or (0.0, ones_N)
    assert value == pytest.approx(40) and abs(float(vector_N.sum())) == pytest.approx(40**0.5)
    assert (spectral.lanczos(torch.zeros(9, 9, dtype=torch.float64)) or (1.0,))[0] == 0


def test_lanczos_and_dense_solver_give_the_same_spectrum(monkeypatch: pytest.MonkeyPatch) -> None:
    points_ND = torch.randn(60, 90, generator=torch.Generator().manual_seed(4)).double()
    apart_NN, weights_N = torch.cdist(points_ND, points_ND).square(), torch.full((60,), 1 / 60)
    whole = spectral.top(apart_NN, weights_N.double())
    monkeypatch.setattr(spectral, "DENSE", 10)
    alone = spectral.top(apart_NN, weights_N.double())
    assert alone.variance == pytest.approx(whole.variance, rel=1e-9)
    torch.testing.assert_close(alone.along_M, whole.along_M, rtol=1e-6, atol=1e-9)
