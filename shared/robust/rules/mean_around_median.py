"""The mean around the median (MeaMed), coordinate by coordinate."""

from torch import Tensor

from rampart_fl.shared.robust import linalg
from rampart_fl.shared.robust.base import Context, Report, Rows, Rule, State
from rampart_fl.shared.robust.rules import rules


@rules.register("mean_around_median")
class MeanAroundMedian(Rule):
    """Per coordinate, the mean of the n - f values nearest the median; ties go to the lower value.

    >>> from rampart_fl.shared.robust import aggregate
    >>> import torch
    >>> aggregate(torch.tensor([[0.0], [1.0], [2.1], [3.3], [100.0]]), "mean_around_median", f=1)
    tensor([1.6000])
    """

    paper = "Xie et al., Generalized Byzantine-tolerant SGD, 2018"
    breakdown = "f < n/2"
    complexity = "O(n log²n d)"
    passes = "1"

    def apply(self, rows: Rows, state: State, context: Context) -> tuple[Tensor, State, Report]:
        f = self.require_majority(rows)
        result_D = linalg.mean_around_median(rows, len(rows) - f)
        return result_D, state, Report(self.name, rows.ids)
