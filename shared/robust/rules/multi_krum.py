"""Multi-Krum: the mean of the rows with the lowest Krum scores."""

from pydantic import Field
from torch import Tensor

from rampart_fl.shared.robust import linalg
from rampart_fl.shared.robust.base import Context, Report, Rows, Rule, State
from rampart_fl.shared.robust.rules import rules
from rampart_fl.shared.robust.rules.krum import ranked, require_krum


@rules.register("multi_krum")
class MultiKrum(Rule):
    """The unweighted mean of the m rows with the lowest Krum scores; ties go to the lower id.

    >>> import torch
    >>> from rampart_fl.shared.robust import aggregate
    >>> rows = torch.tensor([[0.0], [1.0], [2.1], [3.3], [100.0]])
    >>> aggregate(rows, "multi_krum", f=1)
    tensor([1.6000])
    >>> aggregate(rows, {"name": "multi_krum", "m": 2}, f=1)
    tensor([1.5500])
    """

    paper = "Blanchard et al., Machine learning with adversaries, 2017; m = n - f as in FedCAP"
    breakdown = "n >= 2f + 3"
    complexity = "O(n²d)"
    passes = "2"
    m: int | None = Field(default=None, ge=1)
    """Number of rows that are averaged; n - f by default. If m is set, each row that is left out
    before the aggregation lowers m by one."""

    def apply(self, rows: Rows, state: State, context: Context) -> tuple[Tensor, State, Report]:
        f = require_krum(self, rows)
        m = len(rows) - f if self.m is None else max(1, self.m - len(rows.dropped))
        self.require(rows, m, f"n >= m = {m} rows")
        scores_M, order_M = ranked(rows, f)
        weights_M = linalg.uniform(len(rows), order_M[:m])
        columns = {"score": scores_M, "weight": weights_M}
        return rows.combine(weights_M), state, Report(self.name, rows.ids, columns)
