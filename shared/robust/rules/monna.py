"""MoNNA: the mean of the rows nearest to a trusted pivot.

Legend: M rows, D coordinates.
"""

from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError, MissingRow
from rampart_fl.shared.robust import linalg
from rampart_fl.shared.robust.base import Context, Report, Rows, Rule, State
from rampart_fl.shared.robust.context import Need
from rampart_fl.shared.robust.rules import rules


@rules.register("monna")
class MoNNA(Rule):
    """The mean of the n - f rows nearest to the pivot, a trusted update; ties go to the lower id.

    >>> import torch
    >>> from rampart_fl.shared.robust import aggregate
    >>> rows = torch.tensor([[0.0], [1.0], [2.0], [9.0]])
    >>> aggregate(rows, {"name": "monna", "pivot": "1"}, f=1)
    tensor([1.])
    """

    paper = "Farhadkhani et al., Robust collaborative learning with linear gradient overhead, 2023"
    breakdown = "f < n/2, with a trusted pivot"
    complexity = "O(nd)"
    passes = "2"
    pivot: str | None = None
    """Id of the trusted client that provides the pivot. A round fails if it has no row of this
    client. By default, the server's own update is the pivot."""

    def needs(self) -> frozenset[Need]:
        return frozenset({"server_update"}) if self.pivot is None else frozenset()

    def apply(self, rows: Rows, state: State, context: Context) -> tuple[Tensor, State, Report]:
        f = self.require_majority(rows)
        distances_M = linalg.norms(rows, self._pivot(rows, context))
        nearest = distances_M.argsort(stable=True)[: len(rows) - f]
        weights_M = linalg.uniform(len(rows), nearest)
        columns = {"score": distances_M, "weight": weights_M}
        return rows.combine(weights_M), state, Report(self.name, rows.ids, columns)

    def _pivot(self, rows: Rows, context: Context) -> Tensor:
        if self.pivot is None:
            if context.server_update_D is None:
                raise ConfigurationError(
                    "monna needs a trusted client's id (`pivot`) or the server's own update"
                )
            return context.own_update(self.name, rows.place)
        if self.pivot not in rows.ids:
            raise MissingRow(f"monna: the pivot {self.pivot!r} sent no row")
        return rows.row(rows.ids.index(self.pivot))
