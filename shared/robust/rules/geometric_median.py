"""The geometric median, computed by smoothed Weiszfeld steps on the rows' coefficients.

Every iterate is a convex combination of the rows, so the Gram matrix of the rows gives all
distances. The block of rows is therefore read only twice: once for the Gram matrix and once for the
result, however many steps are taken.

Legend: M rows, D coordinates.
"""

import torch
from pydantic import Field
from torch import Tensor

from rampart_fl.shared.robust import linalg
from rampart_fl.shared.robust.base import Context, Report, Rows, Rule, State
from rampart_fl.shared.robust.pool_statistics import Geometry
from rampart_fl.shared.robust.rules import rules

OUTLYING = 1e3
"""The middle row is the row with the smallest median distance to all rows. Let m be the median of
all rows' distances from the middle row. A row is left out of the starting mean if its distance from
the middle row is more than this factor times m."""


@rules.register("geometric_median")
class GeometricMedian(Rule):
    """The point with the smallest weighted sum of distances to the rows.

    The point is the z that minimizes sum_i a_i |x_i - z| for rows x_i with weights a_i. A step
    moves z to sum_i b_i x_i, divided by sum_i b_i, with b_i = a_i / max(ν, |x_i - z|).

    The first step starts at the mean of all rows except those that are extremely far from most rows
    (see `OUTLYING`). The steps stop as soon as z moves by at most `tolerance` times the mean
    distance to the rows.

    >>> from rampart_fl.shared.robust import aggregate
    >>> square = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    >>> aggregate(square, "geometric_median")
    tensor([0.5000, 0.5000])
    """

    paper = "Weiszfeld, 1937; Pillutla et al., Robust aggregation for federated learning, 2019"
    breakdown = "f < n/2"
    complexity = "O(n²d)"
    passes = "2"
    nu: float = Field(default=1e-6, gt=0)
    """ν, the lower bound on the distances in b_i, in the units of the updates.
    """
    iterations: int = Field(default=100, ge=1)
    tolerance: float = Field(default=1e-8, ge=0)
    weighted: bool = False
    """Whether the weights a_i are the rows' trusted weights; if not, all a_i are equal. With
    trusted weights, hostile rows must hold less than half of the total weight."""

    def apply(self, rows: Rows, state: State, context: Context) -> tuple[Tensor, State, Report]:
        self.require_majority(rows)
        masses_M = torch.ones(len(rows), dtype=torch.float64)
        if self.weighted:
            masses_M = rows.trusted_weights()
        weights_M, steps = self.weights(linalg.geometry(rows), masses_M)
        report = Report(self.name, rows.ids, {"weight": weights_M}, {"iterations": steps})
        return rows.combine(weights_M), state, report

    def weights(self, geometry: Geometry, masses_M: Tensor) -> tuple[Tensor, int]:
        """Coefficients (M,) of the geometric median, and the number of steps taken."""
        known_M = geometry.gram_MM.diagonal().isfinite()
        masses_M = masses_M.where(known_M, 0)
        gram_MM = torch.where(known_M[:, None] & known_M, geometry.gram_MM, 0)
        weights_M = masses_M * _starts(geometry.squared_MM)
        weights_M = weights_M / weights_M.sum()
        steps = 0
        while steps < self.iterations:
            steps += 1
            to_M = gram_MM @ weights_M
            squares_M = gram_MM.diagonal() - 2 * to_M + weights_M @ to_M
            distances_M = squares_M.clamp(min=self.nu**2).sqrt()
            before_M = weights_M
            weights_M = masses_M / distances_M
            weights_M = weights_M / weights_M.sum()
            moved_M = weights_M - before_M
            moved = float(moved_M @ gram_MM @ moved_M)
            if moved <= (self.tolerance * float(distances_M @ weights_M)) ** 2:
                break
        return weights_M, steps


def _starts(squared_MM: Tensor) -> Tensor:
    """Mask (M,): 1 for the rows in the starting mean, 0 for other rows."""
    radii_M = squared_MM.sort(dim=1).values[:, len(squared_MM) // 2]
    middle = int(radii_M.argsort(stable=True)[0])
    return (squared_MM[middle] <= OUTLYING**2 * radii_M[middle]).double()
