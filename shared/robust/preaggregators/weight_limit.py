"""Weight limit: bounds a row's weight by a multiple of the median weight, whatever clients claim.

Legend: M rows.
"""

from dataclasses import replace

from pydantic import Field

from rampart_fl.shared.robust.base import Context, PreAggregator, Report, Rows, State
from rampart_fl.shared.robust.preaggregators import preaggregators


@preaggregators.register("weight_limit")
class WeightLimit(PreAggregator):
    """Limits every row's trusted weight to a multiple of the median weight.

    The weight w_i of row i becomes min(w_i, times · median_j w_j), with the median over all rows j.

    Rules such as `weighted_mean` weight a row by the sample count that its client claims. Hostile
    clients can therefore dominate the result if they claim many samples. Suppose that fewer than
    half of the clients are hostile. Then the median weight lies between the smallest and the
    largest honest weight, whatever the hostile clients claim. The weight of a hostile row is then
    at most `times` as large as the largest honest weight. If the number of rows is even, the median
    is the lower of the two middle weights. Rows without trusted weights all keep the weight 1.

    >>> from rampart_fl.shared.robust import aggregate
    >>> stages = [{"name": "weight_limit", "times": 1}, "weighted_mean"]
    >>> aggregate([[0.0], [1.0], [8.0]], stages, weights=[10, 10, 10_000])
    tensor([3.])
    """

    paper = (
        "after Portnoy, Tirosh and Hendler, Towards federated learning with Byzantine-robust "
        "client weighting, 2022; the limit is ours"
    )
    breakdown = "inherited; for weights: f < n/2"
    complexity = "O(n)"
    passes = "0"
    times: float = Field(default=2.0, ge=1)
    """The largest weight after this stage, as a multiple of the median weight."""

    def apply(self, rows: Rows, state: State, context: Context) -> tuple[Rows, State, Report]:
        weights_M = rows.trusted_weights()
        limit = self.times * float(weights_M.median())
        limited_M = weights_M.clamp(max=limit)
        report = Report(
            self.name, rows.ids, {"factor": limited_M / weights_M}, {"largest weight": limit}
        )
        return replace(rows, weights_M=limited_M), state, report
