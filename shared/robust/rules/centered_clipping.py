"""Centred clipping: adds the mean of clipped differences to the previous aggregate.

Legend: M rows, D coordinates.
"""

import torch
from pydantic import Field
from torch import Tensor

from rampart_fl.shared.robust import linalg
from rampart_fl.shared.robust.base import Context, Report, Rows, Rule, State
from rampart_fl.shared.robust.rules import rules
from rampart_fl.shared.runtime.device import to_device


@rules.register("centered_clipping")
class CenteredClipping(Rule):
    """The previous aggregate plus the mean of the rows' clipped differences from this aggregate.

    The aggregate v starts at the previous round's v; in the first round, it starts at 0. Each
    iteration adds the mean of the clipped differences:
    v <- v + (1/n) sum_i (x_i - v) min(1, τ / |x_i - v|).

    >>> from rampart_fl.shared.robust import aggregate
    >>> import torch
    >>> aggregate(torch.tensor([[3.0, 4.0]]), {"name": "centered_clipping", "tau": 1.0})
    tensor([0.6000, 0.8000])
    """

    paper = "Karimireddy et al., Learning from history for Byzantine robust optimization, 2021"
    breakdown = "f < n/2"
    complexity = "O(nd)"
    passes = "2 per iteration"
    kept_vectors = 1
    affine = True
    tau: float | None = Field(default=None, gt=0)
    """τ, the norm to which differences are clipped, in the units of the updates. By default, τ is
    the median of |x_i - v|, so that τ adapts to the scale of the updates. If the number of rows is
    even, this median is the lower of the two middle values."""
    iterations: int = Field(default=1, ge=1)

    def apply(self, rows: Rows, state: State, context: Context) -> tuple[Tensor, State, Report]:
        self.require_majority(rows)
        centre_D = state.tensors.get("centre")
        if centre_D is not None:
            centre_D = to_device(centre_D, rows.device, rows.block_ND.dtype)
        # Each row's coefficient in the result. The earlier centre has the rest.
        shares_M = torch.zeros(len(rows), dtype=torch.float64)
        for _ in range(self.iterations):
            distances_M = linalg.norms(rows, centre_D)
            tau = float(distances_M.median()) if self.tau is None else self.tau
            weights_M = (tau / distances_M).nan_to_num(nan=1.0).clamp(max=1) / len(rows)
            moved_D = rows.combine(weights_M)
            shares_M = shares_M * (1 - weights_M.sum()) + weights_M
            if centre_D is not None:
                moved_D.add_(centre_D, alpha=1 - float(weights_M.sum()))
            centre_D = moved_D
        assert centre_D is not None
        columns = {"score": distances_M, "weight": shares_M}
        report = Report(self.name, rows.ids, columns, {"tau": tau})
        return centre_D, _state(centre_D), report


def _state(centre_D: Tensor) -> State:
    return State({"centre": centre_D.clone()}, vectors=frozenset({"centre"}))
