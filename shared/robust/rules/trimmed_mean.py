"""The coordinate-wise trimmed mean."""

from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor

from rampart_fl.shared.robust import linalg
from rampart_fl.shared.robust.base import Context, Report, Rows, Rule, State
from rampart_fl.shared.robust.rules import rules


@rules.register("trimmed_mean")
class TrimmedMean(Rule):
    """Per coordinate, the mean of all values except the b largest and the b smallest values.

    >>> from rampart_fl.shared.robust import aggregate
    >>> import torch
    >>> aggregate(torch.tensor([[0.0], [1.0], [2.0], [3.0], [100.0]]), "trimmed_mean", f=1)
    tensor([2.])
    """

    paper = "Yin et al., Byzantine-robust distributed learning, 2018; half_f as in FedCAP"
    breakdown = "f <= b < n/2"
    complexity = "O(n log²n d)"
    passes = "1"
    b: Annotated[int, Field(ge=0)] | Literal["f", "half_f"] = "f"
    """How many values are cut on each side: a number, `f`, or `half_f`. `half_f` means floor(f/2),
    so about half of the hostile values are not cut; the FedCAP paper compares its method with this
    variant. If b is a number, each row that is left out before the aggregation lowers b by one, as
    it lowers f."""

    def apply(self, rows: Rows, state: State, context: Context) -> tuple[Tensor, State, Report]:
        f = self.tolerated(rows)
        if isinstance(self.b, str):
            b = {"f": f, "half_f": f // 2}[self.b]
        else:
            b = max(0, self.b - len(rows.dropped))
        self.require(rows, 2 * b + 1, f"n > 2b = {2 * b} rows")
        return linalg.trimmed_mean(rows, b), state, Report(self.name, rows.ids, values={"b": b})
