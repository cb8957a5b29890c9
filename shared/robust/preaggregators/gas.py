"""GAS: keeps the rows nearest to a rule's result; distances are summed over random pieces.

Legend: M rows, D coordinates.
"""

from typing import Any

import torch
from pydantic import Field, PrivateAttr
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.robust import linalg
from rampart_fl.shared.robust.base import Context, PreAggregator, Report, Rows, Rule, State
from rampart_fl.shared.robust.preaggregators import preaggregators
from rampart_fl.shared.robust.rules import rules


@preaggregators.register("gas")
class GAS(PreAggregator):
    """Keeps the rows nearest to a rule's result; a row's distance is summed over pieces of the row.

    The coordinates are split at random into p pieces. In each piece c, the rule F aggregates the
    rows. The distance of row i is the sum over all pieces of |x_i,c - F(x_.,c)|. The n - f rows
    with the smallest distances are kept.

    Here, x_i,c is piece c of row i, and x_.,c is piece c of all rows. To get the paper's aggregate,
    use `weighted_mean` as the next stage.

    >>> from rampart_fl.shared.robust import aggregate
    >>> rows = torch.tensor([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0], [90.0, 90.0]])
    >>> aggregate(rows, [{"name": "gas", "rule": "median"}, "weighted_mean"], f=1)
    tensor([1., 1.])
    """

    paper = (
        "Liu et al., Byzantine-robust learning on heterogeneous data via gradient splitting, 2023"
    )
    breakdown = "inherited"
    complexity = "that of the rule"
    passes = "1, split into `pieces` reads of scattered coordinates"
    rule: str | dict[str, Any] = "median"
    """The rule F: a name, or a TOML table. If the table does not set `f`, F gets the f of `gas`."""
    pieces: int = Field(default=1000, ge=1)
    """p, the number of pieces; if p exceeds D, every coordinate is a piece of its own."""

    _wrapped: Rule = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        self._wrapped = rules.parse(self.rule, f=self.f)
        if self._wrapped.needs():
            raise ConfigurationError(
                "gas applies its rule to pieces of rows, but the rule "
                f"{self._wrapped.name} needs whole models"
            )

    def apply(self, rows: Rows, state: State, context: Context) -> tuple[Rows, State, Report]:
        f = self.require_majority(rows)
        order_D = torch.randperm(rows.whole_dim, generator=context.generator(self.name))
        scores_M = torch.zeros(len(rows), dtype=torch.float64)
        for piece in order_D.tensor_split(min(self.pieces, rows.whole_dim)):
            scores_M += self._scores(rows.columns(piece.sort().values), context)
        kept = scores_M.argsort(stable=True)[: len(rows) - f].sort().values
        report = Report(self.name, rows.ids, {"score": scores_M})
        return rows.keep(kept), state, report

    def _scores(self, part: Rows, context: Context) -> Tensor:
        centre_D, _, _ = self._wrapped.apply(part, self._wrapped.init(part.dim), context)
        return linalg.norms(part, centre_D)
