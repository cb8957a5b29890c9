"""The coordinate-wise median."""

from torch import Tensor

from rampart_fl.shared.robust import linalg
from rampart_fl.shared.robust.base import Context, Report, Rows, Rule, State
from rampart_fl.shared.robust.rules import rules


@rules.register("median")
class Median(Rule):
    """Coordinate-wise median; for an even number of rows, the mean of the two middle values.

    >>> from rampart_fl.shared.robust import aggregate
    >>> import torch
    >>> aggregate(torch.tensor([[1.0], [2.0], [3.0], [100.0]]), "median")
    tensor([2.5000])
    """

    paper = "Yin et al., Byzantine-robust distributed learning, 2018"
    breakdown = "f < n/2"
    complexity = "O(n log²n d)"
    passes = "1"

    def apply(self, rows: Rows, state: State, context: Context) -> tuple[Tensor, State, Report]:
        return linalg.median(rows), state, Report(self.name, rows.ids)
