"""RFA: the geometric median with the settings of the RFA paper."""

from pydantic import Field

from rampart_fl.shared.robust.rules import rules
from rampart_fl.shared.robust.rules.geometric_median import GeometricMedian


@rules.register("rfa")
class RFA(GeometricMedian):
    """`geometric_median` with trusted weights, at most four steps, ν = 1e-5 and tolerance 1e-6.

    Four steps may be too few if many rows are hostile. Assume that f of n equally weighted rows are
    copies of one hostile row far away, and let r = f / (n - f). In the starting mean, the hostile
    rows have r times the honest rows' weight, and each step multiplies this ratio by r. After four
    steps, the hostile rows have r⁵ times the honest rows' weight. The factor r⁵ is 3 % if a third
    of the rows are hostile, but 51 % if 7 of 15 rows are hostile. The starting mean leaves out rows
    that are extremely far from the middle row: more than 1,000 times as far as most rows (see
    `OUTLYING`). In the worst case, the result is therefore about 1,000·r⁵ times the honest rows'
    radius away from the honest rows' mean. More `iterations` reduce this distance.

    >>> from rampart_fl.shared.robust import aggregate
    >>> import torch
    >>> aggregate(torch.tensor([[0.0], [1.0], [10.0]]), {"name": "rfa", "iterations": 3})
    tensor([1.1957])
    """

    paper = "Pillutla et al., Robust aggregation for federated learning, 2019 (RFA)"
    breakdown = "f < n/2, with an error of up to about 10³r⁵ honest radii, where r = f/(n - f)"
    nu: float = Field(default=1e-5, gt=0)
    iterations: int = Field(default=4, ge=1)
    tolerance: float = Field(default=1e-6, ge=0)
    weighted: bool = True
