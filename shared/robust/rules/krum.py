"""Krum: the single row that is closest to its nearest neighbours.

Legend: M rows, D coordinates.
"""

import torch
from torch import Tensor

from rampart_fl.shared.robust import linalg, ties
from rampart_fl.shared.robust.base import Context, Report, Rows, Rule, State
from rampart_fl.shared.robust.rules import rules


def scores(squared_MM: Tensor, f: int) -> Tensor:
    """Krum's score (M,) of each row: the sum of squared distances to the m - f - 2 nearest rows.

    Each sum has at least one term, even if m - f - 2 is 0 or less.

    >>> points = torch.tensor([[0.0], [1.0], [2.0], [100.0]], dtype=torch.float64)
    >>> scores((points - points.T).square(), 0)
    tensor([5.0000e+00, 2.0000e+00, 5.0000e+00, 1.9405e+04], dtype=torch.float64)
    """
    m = len(squared_MM)
    if m == 1:
        return torch.zeros(1, dtype=torch.float64)
    own_MM = torch.eye(m, dtype=torch.bool)
    nearest_MM = squared_MM.masked_fill(own_MM, torch.inf).sort(dim=1).values
    return nearest_MM[:, : max(1, m - f - 2)].sum(dim=1)


def ranked(rows: Rows, f: int) -> tuple[Tensor, Tensor]:
    """Krum's score (M,) of each row, and the rows' positions (M,) from the best score to the worst.

    If scores are tied, the row with the lower id comes first. Scores that differ only by rounding
    errors are tied (see `ties`).

    >>> rows = Rows.of(torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]]))
    >>> ranked(rows, 0)
    (tensor([8., 8., 8., 8.], dtype=torch.float64), tensor([0, 1, 2, 3]))
    """
    squared_MM = linalg.squared_distances(rows)
    scores_M = scores(squared_MM, f)
    return scores_M, ties.ranking(scores_M, ties.tolerance(squared_MM, f))


def require_krum(rule: Rule, rows: Rows) -> int:
    """Checks that f = 0 or n >= 2f + 3, and returns the tolerated f."""
    f = rule.tolerated(rows)
    rule.require(rows, 2 * f + 3 if f else 1, f"n >= 2f + 3 = {2 * f + 3} rows")
    return f


@rules.register("krum")
class Krum(Rule):
    """The row with the smallest sum of squared distances to its nearest rows.

    The result is the row x_i with the smallest sum of |x_i - x_j|² over its n - f - 2 nearest other
    rows x_j. Ties go to the lower id.

    >>> from rampart_fl.shared.robust import aggregate
    >>> aggregate(torch.tensor([[0.0], [1.0], [2.1], [3.3], [100.0]]), "krum", f=1)
    tensor([1.])
    """

    paper = "Blanchard et al., Machine learning with adversaries, 2017"
    breakdown = "n >= 2f + 3"
    complexity = "O(n²d)"
    passes = "1, and one row"

    def apply(self, rows: Rows, state: State, context: Context) -> tuple[Tensor, State, Report]:
        f = require_krum(self, rows)
        scores_M, order_M = ranked(rows, f)
        pick = int(order_M[0])
        columns = {"score": scores_M, "weight": linalg.uniform(len(rows), [pick])}
        return rows.row(pick), state, Report(self.name, rows.ids, columns)
