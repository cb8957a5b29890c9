"""PAwBRoFL: raises a robust rule's weights for clients that claim a larger drop in training loss.

Legend: M rows, D coordinates.
"""

from dataclasses import replace
from math import isfinite

import torch
from pydantic import Field, field_validator
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.robust import linalg
from rampart_fl.shared.robust.base import Context, Report, Rows, Rule, State
from rampart_fl.shared.robust.rules import WrappedRule, rules

SHRINK = 2.0**-600
"""A vector whose squared norm overflows is multiplied by this number before its norm is computed.
"""


@rules.register("performance_aware")
class PerformanceAware(Rule):
    """Rotates a robust rule's aggregate towards rows with weight q > 0 and a large loss gap.

    The result is |r| h / |h|, where r = sum_i q_i x_i is the result of the robust rule, and h =
    sum_i q_i softmax(q_i gap_i / μ) x_i.

    The loss gap gap_i (metadata "loss_gap") is the decrease in training loss that client i claims.
    If `max_gap` is not set, a single row with q > 0 can determine the direction of the result. The
    result has the same norm as r. Gaps that are not finite are set to 0. If h = 0, the result is r.

    >>> from rampart_fl.shared.robust import aggregate
    >>> import torch
    >>> stage = {"name": "performance_aware", "rule": "weighted_mean"}
    >>> aggregate(torch.eye(2), stage, metadata={"loss_gap": [2.0, 0.0]})
    tensor([0.6636, 0.2441])
    """

    paper = "PAwBRoFL, equations 8 and 9"
    breakdown = "that of its rule, in norm"
    complexity = "the cost of its rule, plus O(nd)"
    passes = "1 more than its rule"
    rule: WrappedRule = Field(default="no_regret")  # type: ignore[assignment]  # see WrappedRule
    """The rule that gives the weights q. The rule's result must be linear in the rows. The rule
    gets the f of `performance_aware`."""
    mu: float = Field(default=1.0, gt=0)
    """μ, the temperature. The larger μ is, the less the gaps change the direction of the rule's
    result. Since q is about 1/n, a gap adds about gap / (n μ) to a row's logit."""
    max_gap: float | None = Field(default=None, gt=0)
    """Gaps are clipped to [0, max_gap]; if `max_gap` is None, gaps are not clipped."""

    @field_validator("rule")
    @classmethod
    def _rule_is_linear(cls, rule: Rule) -> Rule:
        if rule.affine:
            raise ValueError(f"the result of {rule.name!r} also contains its earlier results")
        return rule

    def init(self, dim: int) -> State:
        return self.rule.init(dim)

    def apply(self, rows: Rows, state: State, context: Context) -> tuple[Tensor, State, Report]:
        if "loss_gap" not in rows.metadata:
            raise ConfigurationError("performance_aware needs the metadata 'loss_gap' of every row")
        robust_D, state, report = self.rule.apply(rows, state, context)
        if "weight" not in report.per_row:
            raise ConfigurationError(
                "performance_aware needs a rule that yields one weight per row, but "
                f"{self.rule.name!r} with these parameters yields no weights"
            )
        weights_M = report.per_row["weight"].double()
        gaps_M = self.clip_gaps(rows.metadata["loss_gap"])
        shares_M = self.reweigh(weights_M, gaps_M)
        values = {**report.values, "largest_gap": float(gaps_M.max())}
        directed_D = rows.combine(shares_M)
        length, shrunk = _norm(directed_D, rows)
        if not length:
            return robust_D, state, replace(report, stage=self.name, values=values)
        wanted, robust_shrunk = _norm(robust_D, rows)
        scale = wanted / length * (shrunk / robust_shrunk)
        columns = {**report.per_row, "weight": shares_M * scale, "trust": weights_M, "gap": gaps_M}
        return directed_D.mul_(scale), state, Report(self.name, rows.ids, columns, values)

    def clip_gaps(self, gaps_M: Tensor) -> Tensor:
        """The gaps, clipped to [0, max_gap] if `max_gap` is set; non-finite gaps become 0."""
        gaps_M = torch.where(gaps_M.isfinite(), gaps_M, 0.0)
        return gaps_M if self.max_gap is None else gaps_M.clamp(0, self.max_gap)

    def reweigh(self, weights_M: Tensor, gaps_M: Tensor) -> Tensor:
        """New weights from the rule's weights q; rows with q = 0 keep the weight 0.

        The new weights are proportional to q_i softmax(q_i gap_i / μ), and sum to 1.

        >>> PerformanceAware(mu=1.0).reweigh(torch.tensor([0.5, 0.5]), torch.tensor([2.0, 0.0]))
        tensor([0.7311, 0.2689])
        """
        if not bool(weights_M.any()):
            return weights_M
        logits_M = (weights_M * gaps_M / self.mu).nan_to_num()
        # The direction h / |h| does not depend on how the softmax is normalized. A softmax over
        # only the rows with q > 0 therefore gives the same direction, but cannot underflow.
        return (logits_M + weights_M.log()).softmax(dim=0)


def _norm(vector_D: Tensor, rows: Rows) -> tuple[float, float]:
    """The norm of the scaled vector, and the scale, which is 1 if the squared norm is finite."""
    length = linalg.norm(vector_D, rows.part)
    if isfinite(length):
        return length, 1.0
    return linalg.norm(vector_D * SHRINK, rows.part), SHRINK
