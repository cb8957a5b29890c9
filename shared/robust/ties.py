"""Ties of scores: which differences between scores are only rounding errors.

Pre-aggregators such as NNM make rows whose scores are equal in exact arithmetic. Rounding errors
separate these scores, and differ between processors. A rule that compared the raw scores would
therefore choose other rows on another processor.

Legend: M rows, X independent rankings.
"""

from math import isfinite

import torch
from torch import Tensor

TIE = 1e-10
"""Scores of m rows are tied if they differ by at most this share of m typical squared distances.
For 600 rows that NNM mixed with f = 6, rounding errors are 20 times smaller."""


def tolerance(squared_MM: Tensor, f: int) -> float:
    """The largest difference of tied scores, if scores are sums or means of squared distances.

    The result is m · `TIE` times a typical squared distance. The typical squared distance is the (m
    - f)-th smallest of the rows' median squared distances. If at most f rows are hostile, this
    distance cannot exceed the largest distance between honest rows. If it is infinite, the result
    is 0.

    Args:
        squared_MM: squared distances of m rows.
        f: bound on hostile rows, below m / 2.

    >>> points = torch.tensor([0.0, 1.0, 2.0, 1e9], dtype=torch.float64)
    >>> tolerance((points[:, None] - points).square(), 1) / TIE
    16.0
    """
    m = len(squared_MM)
    # If there are two middle values, the upper one is used as the median, because it is positive
    # even if half of the rows are equal.
    medians_M = squared_MM.sort(dim=1).values[:, m // 2]
    typical = float(medians_M.sort().values[m - f - 1])
    return TIE * m * typical if isfinite(typical) else 0.0


def ranking(scores_XM: Tensor, within: float) -> Tensor:
    """The positions (X, M) of the scores in increasing order; tied scores keep their order.

    Two scores are tied if they differ by at most `within`, or if a chain of tied scores connects
    them. Positions follow the ids, so ties go to the lower id.

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
