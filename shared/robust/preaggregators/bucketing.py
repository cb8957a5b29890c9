"""Bucketing: averages small groups of rows, which are drawn at random in every round.

Legend: M rows, L buckets.
"""

from dataclasses import replace

import torch
from pydantic import Field

from rampart_fl.shared.robust.base import Context, PreAggregator, Report, Rows, State
from rampart_fl.shared.robust.preaggregators import preaggregators
from rampart_fl.shared.rounding import ceil_div


@preaggregators.register("bucketing")
class Bucketing(PreAggregator):
    """Permutes the rows at random, and replaces each bucket of s rows by its mean.

    Trusted weights and metadata are averaged over each bucket, too.

    Bucketing leaves f unchanged, because every hostile row can corrupt a different bucket.
    Therefore, 2f must be less than the number of buckets. If you set f = 0 for this stage alone,
    the number of buckets is not checked. The last bucket can have fewer than s rows.

    >>> from rampart_fl.shared.robust import aggregate
    >>> aggregate(torch.tensor([[1.0], [2.0], [6.0]]), [{"name": "bucketing", "s": 3}, "median"])
    tensor([3.])
    """

    paper = "Karimireddy et al., Byzantine-robust learning on heterogeneous datasets, 2022"
    breakdown = "f < n/2s"
    complexity = "O(nd)"
    passes = "0"
    s: int = Field(default=2, ge=1)
    """Number of rows in a bucket."""

    def apply(self, rows: Rows, state: State, context: Context) -> tuple[Rows, State, Report]:
        f, n = self.tolerated(rows), len(rows)
        buckets = ceil_div(n, self.s)
        least = 2 * f * self.s + 1 if f else 1
        self.require(rows, least, f"more than 2f = {2 * f} buckets of s = {self.s} rows")
        order_M = torch.randperm(n, generator=context.generator(self.name))
        bucket_M = torch.empty(n, dtype=torch.long)
        bucket_M[order_M] = torch.arange(n) // self.s
        mix_LM = torch.zeros(buckets, n, dtype=torch.float64)
        mix_LM[bucket_M, torch.arange(n)] = 1
        mix_LM /= mix_LM.sum(dim=1, keepdim=True)
        width = len(str(buckets - 1))
        names = [f"bucket-{b:0{width}d}" for b in range(buckets)]
        weights_L = None if rows.weights_M is None else mix_LM @ rows.weights_M
        metadata = {name: mix_LM @ column_M for name, column_M in rows.metadata.items()}
        mixed = replace(rows.mixed(mix_LM, names, weights_L), metadata=metadata)
        return mixed, state, Report(self.name, rows.ids, {"bucket": bucket_M.double()})
