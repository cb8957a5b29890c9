"""Nearest-neighbour mixing: replaces each row by the mean of the rows nearest to it.

Legend: M rows.
"""

import torch
from torch import Tensor

from rampart_fl.shared.robust import linalg, ties
from rampart_fl.shared.robust.base import Context, PreAggregator, Report, Rows, State
from rampart_fl.shared.robust.preaggregators import preaggregators


@preaggregators.register("nnm")
class NearestNeighbourMixing(PreAggregator):
    """Replaces each row by the mean of the rows nearest to it.

    Row x_i becomes the mean of the n - f rows nearest to x_i, including x_i itself. If two rows are
    equally near, the row with the lower id is preferred.

    >>> from rampart_fl.shared.robust import aggregate
    >>> aggregate(torch.tensor([[0.0], [1.0], [2.0], [100.0]]), ["nnm", "median"], f=1)
    tensor([1.])
    """

    paper = "Allouah et al., Fixing by mixing, 2023 (NNM)"
    breakdown = "f < n/2"
    complexity = "O(n²d)"
    passes = "1"

    def apply(self, rows: Rows, state: State, context: Context) -> tuple[Rows, State, Report]:
        f = self.require_majority(rows)
        mix_MM = mixing_matrix(linalg.squared_distances(rows), len(rows) - f)
        columns = {"weight": mix_MM.mean(dim=0)}
        return rows.mixed(mix_MM), state, Report(self.name, rows.ids, columns)


def mixing_matrix(squared_MM: Tensor, count: int) -> Tensor:
    """The matrix (M, M) whose row i averages the `count` rows nearest to row i.

    Squared distances that differ only by rounding errors count as equal (see `ties`).

    >>> mixing_matrix(torch.tensor([[0.0, 4.0, 1.0], [4.0, 0.0, 1.0], [1.0, 1.0, 0.0]]), 2)[1]
    tensor([0.0000, 0.5000, 0.5000], dtype=torch.float64)
    """
    own_first_MM = squared_MM.clone().fill_diagonal_(-torch.inf)
    blur = ties.tolerance(squared_MM, len(squared_MM) - count)
    nearest_MM = ties.ranking(own_first_MM, blur)[:, :count]
    mix_MM = torch.zeros(len(squared_MM), len(squared_MM), dtype=torch.float64)
    return mix_MM.scatter_(1, nearest_MM, 1 / count)
