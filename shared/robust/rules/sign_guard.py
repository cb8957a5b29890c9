"""SignGuard: keeps rows with plausible norms and typical signs, and clips these rows.

Legend: M rows, D coordinates, R drawn coordinates.
"""

from typing import Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from rampart_fl.shared.robust import linalg
from rampart_fl.shared.robust.base import Context, Report, Rows, Rule, State
from rampart_fl.shared.robust.clustering import mean_shift
from rampart_fl.shared.robust.random_coordinates import coordinates
from rampart_fl.shared.robust.rules import rules


@rules.register("sign_guard")
class SignGuard(Rule):
    """Mean of rows with plausible norms and signs, each clipped to the median norm of all rows.

    A row x is kept if lower <= |x| / (median norm) <= upper and x is in the largest mean-shift
    cluster. Rows are clustered by their shares of positive, negative and zero values among randomly
    drawn coordinates. If there are only two rows, they are in the same cluster. If no row is kept,
    the global model is not updated. The norm of the result is at most the median norm.

    >>> from rampart_fl.shared.robust import aggregate
    >>> import torch
    >>> x = torch.tensor([[1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [-1.0, -1.0], [90.0, 90.0]])
    >>> aggregate(x, {"name": "sign_guard", "fraction": 1.0})
    tensor([1., 1.])
    """

    paper = (
        "Xu et al., Byzantine-robust FL through collaborative malicious gradient filtering, 2022"
    )
    breakdown = "f < n/2, in norm"
    complexity = "O(nd + n²)"
    passes = "2"
    lower: float = Field(default=0.1, ge=0)
    """Smallest norm of a row that is kept, as a multiple of the median norm."""
    upper: float = Field(default=3.0, gt=0)
    """Largest norm of a row that is kept, as a multiple of the median norm."""
    fraction: float = Field(default=0.1, gt=0, le=1)
    """Share of coordinates drawn for the sign statistics."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.lower > self.upper:
            raise ValueError(f"lower {self.lower} is above upper {self.upper}")
        return self

    def apply(self, rows: Rows, state: State, context: Context) -> tuple[Tensor, State, Report]:
        norms_M = linalg.norms(rows)
        ordered_M = norms_M.sort().values
        median = float(ordered_M[(len(rows) - 1) // 2] + ordered_M[len(rows) // 2]) / 2
        plausible_M = (norms_M >= self.lower * median) & (norms_M <= self.upper * median)
        count = max(1, round(self.fraction * rows.whole_dim))
        drawn_R = coordinates(context, "sign_guard", rows.whole_dim, count)
        labels_M = mean_shift(linalg.signs(rows, drawn_R) / count)
        kept_M = plausible_M & (labels_M == 0)
        clips_M = (median / norms_M).nan_to_num(nan=1.0, posinf=1.0).clamp(max=1)
        shares_M = torch.where(kept_M, clips_M, 0.0) / max(int(kept_M.sum()), 1)
        columns = {"weight": shares_M, "score": norms_M, "cluster": labels_M}
        report = Report(self.name, rows.ids, columns, {"median_norm": median})
        return rows.combine(shares_M), state, report
