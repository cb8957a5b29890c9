"""Decides which scores are tied, that is, which scores differ only by rounding errors.

Pre-aggregators such as NNM make rows whose scores are equal in exact arithmetic. Rounding errors
separate these scores, and differ between processors. If a rule compared the raw scores, it would
therefore choose other rows on another processor.

Legend: M rows, X independent rankings.
"""

from math import isfinite

import torch
from torch import Tensor

TIE = 1e-10
"""Scores of m rows are tied if they differ by at most m · `TIE` times a typical squared distance
(see `tolerance`). For 600 rows that NNM mixed with f = 6, rounding errors are 20 times smaller than
this tolerance."""


def tolerance(squared_MM: Tensor, f: int) -> float:
    """The largest difference of tied scores, if scores are sums or means of squared distances.

    The result is m · `TIE` times a typical squared distance. For each row, the median of its
    squared distances is computed, and these medians are sorted in ascending order. The median at
    position m - f (counted from 1) is the typical squared distance. If at most f rows are hostile,
    it cannot exceed the largest squared distance between honest rows. If the typical squared
    distance is infinite, the result is 0.

    Args:
        squared_MM: squared distances of m rows.
        f: bound on hostile rows, below m / 2.

    >>> points = torch.tensor([0.0, 1.0, 2.0, 1e9], dtype=torch.float64)
    >>> tolerance((points[:, None] - points).square(), 1) / TIE
    16.0
    """
    m = len(squared_MM)
    # If a row has two middle values, the larger value is used as its median. This value is positive
    # even if half of the rows are equal.
    medians_M = squared_MM.sort(dim=1).values[:, m // 2]
    typical = float(medians_M.sort().values[m - f - 1])
    return TIE * m * typical if isfinite(typical) else 0.0


def ranking(scores_XM: Tensor, within: float) -> Tensor:
    """The positions (X, M) of the scores in increasing order; tied scores keep their order.

    Two scores are tied if they differ by at most `within`. If a is tied with b and b is tied with
    c, then a is also tied with c. Rows are sorted by id, so of two tied rows, the row with the
    lower id comes first.

    >>> ranking(torch.tensor([3.0, 1.0 + 1e-6, 1.0, 2.0]), within=1e-3)
    tensor([1, 2, 3, 0])
    """
    ordered = scores_XM.sort(dim=-1, stable=True)
    # The difference of two infinite scores is NaN, so these scores count as tied.
    new_XM = ordered.values.diff(dim=-1, prepend=ordered.values[..., :1]) > within
    groups_XM = torch.empty_like(ordered.indices).scatter_(
        -1, ordered.indices, new_XM.cumsum(dim=-1)
    )
    return groups_XM.argsort(dim=-1, stable=True)
