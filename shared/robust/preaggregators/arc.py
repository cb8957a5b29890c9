"""ARC: clips the rows with the largest norms to the largest norm of the other rows.

Legend: M rows.
"""

import torch

from rampart_fl.shared.robust import linalg
from rampart_fl.shared.robust.base import Context, PreAggregator, Report, Rows, State
from rampart_fl.shared.robust.preaggregators import preaggregators
from rampart_fl.shared.robust.preaggregators.clipping import factors


@preaggregators.register("arc")
class ARC(PreAggregator):
    """Clips the floor(2f/n (n - f)) rows with the largest norms to the largest norm of the rest.

    >>> from rampart_fl.shared.robust import aggregate
    >>> aggregate(torch.tensor([[1.0], [2.0], [3.0], [90.0]]), ["arc", "weighted_mean"], f=1)
    tensor([2.2500])
    """

    paper = "Allouah et al., Adaptive gradient clipping for robust federated learning, 2025 (ARC)"
    breakdown = "inherited"
    complexity = "O(nd)"
    passes = "0"

    def apply(self, rows: Rows, state: State, context: Context) -> tuple[Rows, State, Report]:
        f, n = self.require_majority(rows), len(rows)
        lengths_M = linalg.norms(rows)
        cut = 2 * f * (n - f) // n
        threshold = float(lengths_M.sort(descending=True).values[cut])
        factors_M = factors(rows, threshold, lengths_M)
        columns = {"score": lengths_M, "factor": factors_M}
        report = Report(self.name, rows.ids, columns, {"threshold": threshold})
        return rows.mixed(torch.diag(factors_M)) if cut else rows, state, report
