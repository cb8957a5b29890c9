"""Spectra of weighted rows, computed only from their squared distances.

The relative accuracy of a distance between two rows depends only on these two rows. A row with
weight 0 therefore does not affect the accuracy for the other rows, even if its values are around
1e30. The computation needs no copy of the rows.

Legend: M rows, S rows with a positive weight (the support), T Lanczos steps.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

DENSE = 400
"""If a matrix has more rows than this number, Lanczos steps compute its top eigenpair."""
STEPS, CHECK, RESIDUAL = 200, 10, 1e-10
"""`STEPS` is the largest number of Lanczos steps. `CHECK` is the number of steps between two checks
for convergence. `RESIDUAL` is the largest residual |G v - λ v| at convergence, as a share of the
eigenvalue λ."""


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The top eigenvalue of a weighted covariance, and the rows' quasi-gradients.

    Args:
        variance: the largest eigenvalue ‖Cov_q‖₂ of the covariance Cov_q.
        along_M: the quasi-gradient (vᵀ(x_i - μ_q))² of every row, where v is the unit eigenvector
            of the largest eigenvalue.
    """

    variance: float
    along_M: Tensor


def centred_gram(distances_MM: Tensor, weights_M: Tensor) -> Tensor:
    """Inner products <x_i - μ, x_j - μ> (M, M) relative to the weighted mean μ = sum_i q_i x_i.

    Args:
        distances_MM: squared Euclidean distances, float64.
        weights_M: the weights q of the rows, which add up to 1.

    >>> centred_gram(torch.tensor([[0.0, 4.0], [4.0, 0.0]]), torch.tensor([0.5, 0.5]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    means_M = distances_MM @ weights_M
    return (means_M[:, None] + means_M[None, :] - distances_MM - means_M @ weights_M) / 2


def top(distances_MM: Tensor, weights_M: Tensor) -> Spectrum:
    """The top eigenvalue of Cov_q = sum_i q_i (x_i - μ_q)(x_i - μ_q)ᵀ, and the quasi-gradients.

    The eigenvalue and the quasi-gradients are computed from the rows' weighted Gram matrix, which
    has the same nonzero eigenvalues as Cov_q. Rows with weight 0 are left out of this matrix, and
    their `along_M` is 0.

    Args:
        distances_MM: squared Euclidean distances, float64.
        weights_M: the weights q of the rows, which are at least 0 and add up to 1.

    >>> points = torch.tensor([0.0, 0.0, 0.0, 0.0, 10.0])
    >>> top((points[:, None] - points) ** 2, torch.full((5,), 0.2)).along_M.round()
    tensor([ 4.,  4.,  4.,  4., 64.])
    """
    support_S = weights_M.nonzero().flatten()
    weights_S = weights_M[support_S]
    gram_SS = centred_gram(distances_MM[support_S][:, support_S], weights_S)
    roots_S = weights_S.sqrt()
    value, vector_S = largest(gram_SS * torch.outer(roots_S, roots_S))
    variance = max(value, 0.0)
    along_M = torch.zeros_like(weights_M)
    if variance > 0:
        along_M[support_S] = (gram_SS @ (roots_S * vector_S)).square() / variance
    return Spectrum(variance, along_M)


def largest(matrix_SS: Tensor) -> tuple[float, Tensor]:
    """The largest eigenvalue of a symmetric matrix and its unit eigenvector (S,).

    >>> largest(torch.tensor([[2.0, 0.0], [0.0, 3.0]]))[0]
    3.0
    """
    if len(matrix_SS) > DENSE and (pair := lanczos(matrix_SS)):
        return pair
    values_S, vectors_SS = torch.linalg.eigh(matrix_SS)
    return float(values_S[-1]), vectors_SS[:, -1]


def lanczos(matrix_SS: Tensor) -> tuple[float, Tensor] | None:
    """Like `largest`, but by Lanczos iteration; None if the iteration does not converge.

    Every basis vector is made orthogonal to all earlier basis vectors. Without this step, rounding
    errors would make the same direction occur twice.
    """
    draws = torch.Generator().manual_seed(0)
    rest_S = torch.randn(len(matrix_SS), dtype=torch.float64, generator=draws)
    basis_TS = torch.zeros(min(STEPS, len(matrix_SS)), len(matrix_SS), dtype=torch.float64)
    image_TT = torch.zeros(len(basis_TS), len(basis_TS), dtype=torch.float64)
    length, last, scale = float(rest_S.norm()), len(basis_TS) - 1, 0.0
    for step in range(len(basis_TS)):
        basis_TS[step] = rest_S / length
        rest_S = matrix_SS @ basis_TS[step]
        scale = max(scale, float(rest_S.norm()))
        known_TS = basis_TS[: step + 1]
        image_TT[step, step] = basis_TS[step] @ rest_S
        for _ in range(2):
            rest_S = rest_S - (known_TS @ rest_S) @ known_TS
        length = float(rest_S.norm())
        if step % CHECK == 0 or step == last or length <= RESIDUAL * scale:
            values_T, vectors_TT = torch.linalg.eigh(image_TT[: step + 1, : step + 1])
            value, vector_T = float(values_T[-1]), vectors_TT[:, -1]
            if length * abs(float(vector_T[-1])) <= RESIDUAL * abs(value):
                return value, vector_T @ known_TS
        if step < last:
            image_TT[step, step + 1] = image_TT[step + 1, step] = length
    return None


def reachable(distances_MM: Tensor) -> Tensor:
    """Mask (M,) of rows whose distances to most other rows are finite in float64.

    >>> reachable(torch.tensor([[0.0, 1.0, torch.inf], [1.0, 0.0, torch.inf], [torch.inf] * 3]))
    tensor([ True,  True, False])
    """
    return distances_MM.isfinite().sum(dim=1) > len(distances_MM) / 2


def uniform(kept_M: Tensor) -> Tensor:
    """Float64 weights (M,): equal for all rows in the mask `kept_M`, and 0 for other rows."""
    return kept_M.double() / int(kept_M.sum())


def nearest(distances_MM: Tensor, count: int) -> tuple[float, Tensor]:
    """Squared radius and rows of the smallest ball that is centred on a row and has `count` rows.

    Suppose that at most f of the n rows are hostile, f < n/2 and count = n - f. Then the radius is
    at most the diameter of the honest rows, whatever values the hostile rows have.
    """
    radii_M = distances_MM.sort(dim=1).values[:, count - 1]
    centre = int(radii_M.argmin())
    order_M = distances_MM[centre].sort(stable=True).indices
    return float(radii_M[centre]), order_M[:count].sort().values


def honest_variance(distances_MM: Tensor, count: int) -> float:
    """‖Cov‖₂ of the `count` rows that `nearest` finds; hostile rows cannot inflate this value."""
    kept_M = torch.zeros(len(distances_MM), dtype=torch.bool)
    kept_M[nearest(distances_MM, count)[1]] = True
    return top(distances_MM, uniform(kept_M)).variance


def capped_simplex(weights_M: Tensor, cap: float) -> Tensor:
    """The KL projection p of weights q on the weights that sum to 1 and do not exceed `cap`.

    All q must be at least 0. The projection is p_i = min(cap, s q_i) for some factor s.

    If fewer than 1 / cap rows have a positive weight, the cap is raised so that these weights can
    sum to 1.

    >>> capped_simplex(torch.tensor([0.7, 0.1, 0.1, 0.1]), 1 / 3)
    tensor([0.3333, 0.2222, 0.2222, 0.2222])
    """
    held = int((weights_M > 0).sum())
    cap = max(cap, 1 / held)
    sorted_M, order_M = weights_M.sort(descending=True, stable=True)
    tail_M = sorted_M.flip(0).cumsum(0).flip(0)
    counts_M = torch.arange(len(weights_M), dtype=weights_M.dtype)
    # If k rows are at the cap, the other rows share the weight 1 - k * cap. The projection has the
    # smallest k for which no other row exceeds the cap.
    scales_M = (1 - counts_M * cap) / tail_M
    fits_M = (scales_M * sorted_M <= cap * (1 + 1e-12)) & (tail_M > 0)
    if not bool(fits_M.any()):
        return (weights_M > 0).to(weights_M.dtype) / held
    k = int(fits_M.to(torch.int8).argmax())
    filled_M = scales_M[k] * sorted_M
    filled_M[:k] = cap
    return torch.empty_like(weights_M).index_copy_(0, order_M, filled_M)
