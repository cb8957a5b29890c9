"""Finds uploads that are copies of each other, by comparing their directions.

Legend: M rows, K numbers of a sketch.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

FEWEST = 4
"""If there are fewer rows than this number, no row counts as a copy, because the median distance
between pairs would not be meaningful."""


def cosine_distances(uploads_MK: Tensor) -> Tensor:
    """Cosine distances (M, M); a distance is 1 if either row is zero or not finite.

    >>> cosine_distances(torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]]))[0].tolist()
    [0.0, 0.0, 1.0]
    """
    lengths_M = uploads_MK.norm(dim=1, keepdim=True)
    units_MK = torch.where(
        (lengths_M > 0) & lengths_M.isfinite(), uploads_MK / lengths_M.clamp(min=1e-300), 0.0
    )
    return 1 - units_MK @ units_MK.T


def neighbours_within(uploads_MK: Tensor, most: float) -> list[list[int]]:
    """For each row, the positions of the other rows at a cosine distance below `most`.

    >>> neighbours_within(torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]]), 0.1)
    [[1], [0], []]
    """
    near_MM = (cosine_distances(uploads_MK) < most).fill_diagonal_(False)
    return [near_M.nonzero().flatten().tolist() for near_M in near_MM]


def near_copies(
    uploads_MK: Tensor, most: float, usual: float, counted: Sequence[int]
) -> list[list[int]]:
    """For each row, the other rows whose distance to this row is far below the median distance.

    Args:
        uploads_MK: sketches of uploads.
        most: limit on the distance; two rows can be copies of each other only below this limit.
        usual: second limit on the distance, as a fraction of the median distance between pairs.
        counted: the rows whose pairs count towards the median distance.

    >>> rows = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> near_copies(rows, 0.01, 0.05, range(4))
    [[1], [0], [], []]
    """
    if len(counted) < FEWEST:
        return [[] for _ in uploads_MK]
    apart_MM = cosine_distances(uploads_MK[counted])
    upper = torch.triu_indices(len(apart_MM), len(apart_MM), 1)
    pairs = apart_MM[upper[0], upper[1]]
    return neighbours_within(uploads_MK, min(most, usual * float(pairs.median())))
