"""The clustered rule, a baseline in FedCAP: the mean of the larger of two clusters of rows."""

import torch
from torch import Tensor

from rampart_fl.shared.robust import linalg
from rampart_fl.shared.robust.base import Context, Report, Rows, Rule, State
from rampart_fl.shared.robust.clustering import complete_linkage
from rampart_fl.shared.robust.rules import rules


@rules.register("clustered")
class Clustered(Rule):
    """Weighted mean of the larger of two clusters of rows (complete linkage, cosine distance).

    A zero row is treated as opposite to all other rows. If both clusters have the same size, the
    cluster that contains the lowest id is used. Clusters depend only on the directions of the rows.
    Rows of the larger cluster can have any norm, so the rule does not bound the norm of its result.

    >>> from rampart_fl.shared.robust import aggregate
    >>> import torch
    >>> aggregate(torch.tensor([[1.0, 0.0], [1.0, 0.2], [-9.0, 0.0]]), "clustered")
    tensor([1.0000, 0.1000])
    """

    paper = "FedCAP, section VI-A4 (ClusteredFL, after Sattler et al., 2020)"
    breakdown = "none"
    complexity = "O(n²d + n³)"
    passes = "2"

    def apply(self, rows: Rows, state: State, context: Context) -> tuple[Tensor, State, Report]:
        apart_MM = 1 - linalg.cosines(rows)
        labels_M = complete_linkage(apart_MM, 2)
        larger = int((labels_M == 1).sum()) > int((labels_M == 0).sum())
        kept_M = labels_M == int(larger)
        weights_M = torch.where(kept_M, rows.trusted_weights(), 0.0)
        shares_M = weights_M / weights_M.sum()
        report = Report(self.name, rows.ids, {"weight": shares_M, "cluster": labels_M})
        return rows.combine(shares_M), state, report
