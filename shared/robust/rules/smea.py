"""SMEA: the mean of the n - f rows whose covariance has the smallest top eigenvalue.

Legend: M rows, B subsets, S rows of a subset, D coordinates.
"""

from itertools import combinations, islice
from math import comb

import torch
from pydantic import Field
from torch import Tensor

from rampart_fl.shared.errors import PreconditionError
from rampart_fl.shared.robust import linalg, ties
from rampart_fl.shared.robust.base import Context, Report, Rows, Rule, State
from rampart_fl.shared.robust.rules import rules

BATCH = 4096
"""Number of subsets whose eigenvalues are computed at once."""
SLACK = 1e-5
"""Lower bounds on variances are reduced by this share, because rounding errors in the distances can
make the bounds too large."""


@rules.register("smea")
class SMEA(Rule):
    """The mean of the subset of n - f rows with the smallest ‖Cov‖₂.

    If subsets are tied, the subset with the lowest ids is used.

    >>> from rampart_fl.shared.robust import aggregate
    >>> aggregate(torch.tensor([[0.0], [1.0], [2.1], [3.3], [100.0]]), "smea", f=1)
    tensor([1.6000])
    """

    paper = "Allouah et al., On the privacy-robustness-utility trilemma, 2023"
    breakdown = "f < n/2"
    complexity = "O(n²d) and C(n, f) eigenvalues"
    passes = "2"
    most: int = Field(default=200_000, ge=1)
    """Largest number of subsets to search; if there are more, the rule fails."""

    def apply(self, rows: Rows, state: State, context: Context) -> tuple[Tensor, State, Report]:
        f, n = self.require_majority(rows), len(rows)
        if comb(n, f) > self.most:
            raise PreconditionError(
                f"smea would search C(n, f) = {comb(n, f)} subsets, but the limit `most` is "
                f"{self.most}: n={n}, f={f}"
            )
        kept, variance = least_variance_subset(linalg.squared_distances(rows), n - f)
        weights_M = linalg.uniform(n, kept)
        report = Report(self.name, rows.ids, {"weight": weights_M}, {"variance": variance})
        return rows.combine(weights_M), state, report


def least_variance_subset(squared_MM: Tensor, size: int) -> tuple[list[int], float]:
    """The positions of the rows in the subset with the smallest variance, and this variance.

    The variance of a subset is the largest eigenvalue of its covariance matrix. If several subsets
    have the smallest variance, the lexicographically first subset is returned. Variances that
    differ only by rounding errors count as equal (see `ties`). For each subset, a lower bound on
    the variance is computed first. If this bound exceeds the smallest variance so far, the subset's
    eigenvalues are not computed. The search stops early at a subset whose rows are all equal.

    >>> points = torch.tensor([0.0, 5.0, 1.0, 2.0], dtype=torch.float64)
    >>> least_variance_subset((points[:, None] - points).square(), 3)[0]
    [0, 2, 3]
    """
    best, least = list(range(size)), float("inf")
    blur = ties.tolerance(squared_MM, len(squared_MM) - size)
    subsets = combinations(range(len(squared_MM)), size)
    while batch := list(islice(subsets, BATCH)):
        at_BS = torch.tensor(batch)
        bounds_B = _bounds(squared_MM, at_BS)
        lowest = int(bounds_B.argmin())
        if not bool(bounds_B[lowest] <= least):
            continue
        reach = min(least, float(_variances(squared_MM, at_BS[lowest : lowest + 1])[0]))
        chance_B = bounds_B <= reach + blur
        # Because of rounding, a bound can exceed the variance of its subset. The search
        # nevertheless keeps the subset with the lowest bound.
        chance_B[lowest] = True
        at_BS = at_BS[chance_B]
        variances_B = _variances(squared_MM, at_BS)
        first = int(ties.ranking(variances_B, blur)[0])
        # `combinations` yields the subsets in lexicographic order, so an earlier batch wins a tie.
        if float(variances_B[first]) < least - blur:
            best, least = at_BS[first].tolist(), float(variances_B[first])
        if least <= blur:
            break
    return best, least


def _variances(squared_MM: Tensor, at_BS: Tensor) -> Tensor:
    """For every subset, the largest variance (B,) along any direction."""
    squared_BSS = squared_MM[at_BS[:, :, None], at_BS[:, None, :]]
    means_BS = squared_BSS.mean(dim=2)
    gram_BSS = means_BS[:, :, None] + means_BS[:, None, :] - squared_BSS
    gram_BSS = (gram_BSS - means_BS.mean(dim=1)[:, None, None]) / 2
    values_BS: Tensor = torch.linalg.eigvalsh(gram_BSS)
    return values_BS[:, -1] / at_BS.shape[1]


def _bounds(squared_MM: Tensor, at_BS: Tensor) -> Tensor:
    """Lower bounds (B,) on the subsets' top variances; infinite if a distance is not finite.

    The top eigenvalue of a subset's centred Gram matrix G is at least |G|² / tr G. For s rows, let
    d be the matrix of squared distances, and let 1 be the vector of ones. Then tr G = sum d / 2s
    and |G|² = (|d|² - 2/s |d 1|² + (sum d)² / s²) / 4.
    """
    size = at_BS.shape[1]
    in_BM = torch.zeros(len(at_BS), len(squared_MM), dtype=torch.float64).scatter_(1, at_BS, 1)
    far_MM = ~squared_MM.isfinite()
    scale = float(squared_MM[~far_MM].max()) or 1.0
    near_MM = squared_MM.masked_fill(far_MM, 0) / scale
    sums_BM = in_BM @ near_MM
    total_B = (in_BM * sums_BM).sum(dim=1)
    squares_B = (in_BM * (in_BM @ near_MM.square())).sum(dim=1)
    squares_B -= 2 / size * (in_BM * sums_BM.square()).sum(dim=1) - (total_B / size).square()
    bounds_B = (squares_B / total_B * (size / 2) * (1 - SLACK)).nan_to_num(nan=0.0) * scale / size
    lost_B = (in_BM * (in_BM @ far_MM.double())).sum(dim=1) > 0
    return bounds_B.masked_fill(lost_B, torch.inf)
