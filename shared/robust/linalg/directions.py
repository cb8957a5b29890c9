"""Cosine similarities between rows, and between rows and a vector.

Legend: M rows of the view, D coordinates.
"""

from torch import Tensor

from rampart_fl.shared.robust.linalg.geometry import squared_distances
from rampart_fl.shared.robust.linalg.products import dots, gram, norm, norms
from rampart_fl.shared.robust.view import View

PARALLEL = 0.99
"""Above this cosine, 1 - cos is computed from distances: inner products alone would leave too few
significant digits of 1 - cos."""


def cosines(rows: View) -> Tensor:
    """Cosine similarities (M, M) of the rows, clamped to [-1, 1]; -1 if either row is zero.

    The cosine of almost parallel rows is computed from their distance: 1 - cos is
    (|x - y|² - (|x| - |y|)²) / (2 |x| |y|). But if almost parallel rows have very different
    norms, their inner product gives a more accurate cosine, and is used instead.

    >>> from rampart_fl.shared.robust import Rows
    >>> import torch
    >>> cosines(Rows.of(torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]])))[0]
    tensor([ 1.0000, -1.0000,  0.7071], dtype=torch.float64)
    """
    gram_MM = gram(rows)
    norms_M = gram_MM.diagonal().sqrt()
    cosines_MM = (gram_MM / norms_M[:, None] / norms_M[None, :]).fill_diagonal_(0)
    close_MM = cosines_MM > PARALLEL
    if bool(close_MM.any()):
        norms_M, squared_MM = norms(rows), squared_distances(rows)
        gaps_MM = squared_MM - (norms_M[:, None] - norms_M[None, :]).square()
        off_MM = gaps_MM.clamp(min=0) / norms_M[:, None] / norms_M[None, :] / 2
        close_MM &= squared_MM <= norms_M[:, None] * norms_M[None, :]
        cosines_MM[close_MM] = 1 - off_MM[close_MM]
    cosines_MM.fill_diagonal_(1)
    zero_M = norms_M == 0
    cosines_MM[zero_M] = -1
    cosines_MM[:, zero_M] = -1
    return cosines_MM.nan_to_num(nan=-1.0).clamp(-1, 1)


def cosines_to(rows: View, vector_D: Tensor) -> Tensor:
    """Cosine similarity (M,) of every row to a vector, in [-1, 1]; -1 if the row or vector is 0."""
    lengths_M = norms(rows) * norm(vector_D, rows.part)
    cosines_M: Tensor = dots(rows, vector_D) / lengths_M
    return cosines_M.nan_to_num(nan=-1.0).clamp(-1, 1)
