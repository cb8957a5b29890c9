"""Bulyan: picks rows by repeated Krum, then takes the mean around the median of the picked rows.

Legend: M rows, R rows that are not picked yet, D coordinates.
"""

import torch
from torch import Tensor

from rampart_fl.shared.robust import linalg, ties
from rampart_fl.shared.robust.base import Context, Report, Rows, Rule, State
from rampart_fl.shared.robust.rules import rules


@rules.register("bulyan")
class Bulyan(Rule):
    """Picks n - 2f rows by Krum; averages, per coordinate, the n - 4f values nearest the median.

    Each picked row is removed before the next pick. Suppose that r rows are not picked yet. The
    score of such a row is the sum of its squared distances to its max(1, r - f - 2) nearest
    neighbours among the r rows. If scores are tied, the row with the lower id is picked. If two
    values are equally near the median, the lower value is used.

    >>> from rampart_fl.shared.robust import aggregate
    >>> rows = torch.tensor([[0.0], [1.0], [2.1], [3.3], [4.6], [6.0], [100.0]])
    >>> aggregate(rows, "bulyan", f=1)
    tensor([2.1333])
    """

    paper = "El Mhamdi et al., The hidden vulnerability of distributed learning in Byzantium, 2018"
    breakdown = "n >= 4f + 3"
    complexity = "O(n²d + n³)"
    passes = "2"

    def apply(self, rows: Rows, state: State, context: Context) -> tuple[Tensor, State, Report]:
        f, n = self.tolerated(rows), len(rows)
        self.require(rows, 4 * f + 3 if f else 1, f"n >= 4f + 3 = {4 * f + 3} rows")
        picked = picks(linalg.squared_distances(rows), n - 2 * f, f)
        order_M = torch.zeros(n, dtype=torch.float64)
        order_M[picked] = torch.arange(1, len(picked) + 1, dtype=torch.float64)
        chosen = rows.keep(sorted(picked))
        result_D = linalg.mean_around_median(chosen, n - 4 * f)
        return result_D, state, Report(self.name, rows.ids, {"pick": order_M})


def picks(squared_MM: Tensor, count: int, f: int) -> list[int]:
    """Positions of rows, in the order in which repeated Krum picks them.

    >>> points = torch.tensor([0.0, 1.0, 2.1, 3.3, 4.6, 6.0, 100.0], dtype=torch.float64)
    >>> picks((points[:, None] - points).square(), 5, 1)
    [2, 3, 1, 4, 0]
    """
    own_MM = torch.eye(len(squared_MM), dtype=torch.bool)
    by_distance = squared_MM.masked_fill(own_MM, torch.inf).sort(dim=1)
    nearest_RR, rows_RR = by_distance.values.numpy(), by_distance.indices.numpy()
    left, taken = list(range(len(squared_MM))), list[int]()
    blur = ties.tolerance(squared_MM, f)
    while len(taken) < count:
        neighbours = max(1, len(left) - f - 2)
        scores_R = nearest_RR[:, :neighbours].sum(axis=1)
        pick = int((scores_R <= scores_R.min() + blur).argmax())
        taken.append(left.pop(pick))
        # Remove the distances to the picked row; the remaining distances stay sorted.
        kept_RR = rows_RR != taken[-1]
        kept_RR[pick] = False
        nearest_RR = nearest_RR[kept_RR].reshape(len(left), len(left))
        rows_RR = rows_RR[kept_RR].reshape(len(left), len(left))
    return taken
