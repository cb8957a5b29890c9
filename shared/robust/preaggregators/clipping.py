"""Clipping: scales down every row whose norm is above a threshold.

Legend: M rows.
"""

import torch
from pydantic import Field
from torch import Tensor

from rampart_fl.shared.robust import linalg
from rampart_fl.shared.robust.base import Context, PreAggregator, Report, Rows, State
from rampart_fl.shared.robust.preaggregators import preaggregators


def factors(rows: Rows, threshold: float, lengths_M: Tensor | None = None) -> Tensor:
    """The factor min(1, threshold / |x_i|) of every row x_i (M,); 1 for a zero row."""
    lengths_M = linalg.norms(rows) if lengths_M is None else lengths_M
    return (threshold / lengths_M).nan_to_num(nan=1.0, posinf=1.0).clamp(max=1)


@preaggregators.register("clipping")
class Clipping(PreAggregator):
    """Clips every row to a norm of at most c.

    Row x_i becomes x_i min(1, c / |x_i|).

    >>> from rampart_fl.shared.robust import aggregate
    >>> aggregate(torch.tensor([[3.0, 4.0]]), ["clipping", "median"])
    tensor([1.2000, 1.6000])
    """

    paper = "Sun et al., Can you really backdoor federated learning?, 2019"
    breakdown = "inherited"
    complexity = "O(nd)"
    passes = "0"
    threshold: float = Field(default=2.0, gt=0)
    """c, the maximum norm of a row after clipping, in the units of the updates."""

    def apply(self, rows: Rows, state: State, context: Context) -> tuple[Rows, State, Report]:
        factors_M = factors(rows, self.threshold)
        columns = {"factor": factors_M}
        return rows.mixed(torch.diag(factors_M)), state, Report(self.name, rows.ids, columns)
