"""The weighted mean (FedAvg), a non-robust baseline."""

from torch import Tensor

from rampart_fl.shared.robust.base import Context, Report, Rows, Rule, State
from rampart_fl.shared.robust.rules import rules


@rules.register("weighted_mean")
class WeightedMean(Rule):
    """The weighted mean, a non-robust baseline.

    The result is sum_i w_i x_i / sum_i w_i with trusted weights w. One hostile row can move this
    mean anywhere.

    >>> from rampart_fl.shared.robust import aggregate
    >>> import torch
    >>> aggregate(torch.tensor([[0.0], [4.0]]), "weighted_mean", weights=[3, 1])
    tensor([1.])
    """

    paper = "McMahan et al., Communication-efficient learning of deep networks, 2017 (FedAvg)"
    breakdown = "none"
    complexity = "O(nd)"
    passes = "1"

    def apply(self, rows: Rows, state: State, context: Context) -> tuple[Tensor, State, Report]:
        weights_M = rows.trusted_weights()
        shares_M = weights_M / weights_M.sum()
        return rows.combine(shares_M), state, Report(self.name, rows.ids, {"weight": shares_M})
