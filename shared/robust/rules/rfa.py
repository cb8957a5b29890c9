"""RFA: the geometric median with the settings of the RFA paper."""

from pydantic import Field

from rampart_fl.shared.robust.rules import rules
from rampart_fl.shared.robust.rules.geometric_median import GeometricMedian


@rules.register("rfa")
class RFA(GeometricMedian):
    """`geometric_median` with trusted weights, at most four steps, ν = 1e-5 and tolerance 1e-6.

    >>> from rampart_fl.shared.robust import aggregate
    >>> import torch
    >>> aggregate(torch.tensor([[0.0], [1.0], [10.0]]), {"name": "rfa", "iterations": 3})
    tensor([1.1957])
    """

    paper = "Pillutla et al., Robust aggregation for federated learning, 2019 (RFA)"
    nu: float = Field(default=1e-5, gt=0)
    iterations: int = Field(default=4, ge=1)
    tolerance: float = Field(default=1e-6, ge=0)
    weighted: bool = True
