"""The weighted mean of rows that are clipped to a fixed norm."""

from pydantic import Field
from torch import Tensor

from rampart_fl.shared.robust.base import Context, Report, Rows, Rule, State
from rampart_fl.shared.robust.preaggregators.clipping import factors
from rampart_fl.shared.robust.rules import rules


@rules.register("norm_clipping")
class NormClipping(Rule):
    """Weighted mean of rows that are clipped to a norm of at most c.

    The result is sum_i w_i x_i min(1, c / |x_i|) / sum_i w_i with trusted weights w. The norm of
    the result is at most c.

    >>> from rampart_fl.shared.robust import aggregate
    >>> import torch
    >>> aggregate(torch.tensor([[3.0, 4.0], [0.6, 0.8]]), "norm_clipping")
    tensor([0.9000, 1.2000])
    """

    paper = "Sun et al., Can you really backdoor federated learning?, 2019"
    breakdown = "bounded by the threshold"
    complexity = "O(nd)"
    passes = "1"
    threshold: float = Field(default=2.0, gt=0)
    """c, the largest norm of a clipped row, in the units of the updates."""

    def apply(self, rows: Rows, state: State, context: Context) -> tuple[Tensor, State, Report]:
        trusted_M = rows.trusted_weights()
        weights_M = factors(rows, self.threshold) * trusted_M / trusted_M.sum()
        return rows.combine(weights_M), state, Report(self.name, rows.ids, {"weight": weights_M})
