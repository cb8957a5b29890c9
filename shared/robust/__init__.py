"""Byzantine-robust aggregation as pure functions on rows.

This package contains rules, pre-aggregators, detectors and customizers, the engine that runs a
round with them, and fast linear algebra on rows. Code that trains belongs in `learning`. Code that
loads updates or stores models belongs to the services and to `simulation`.

>>> import torch
>>> from rampart_fl.shared.robust import aggregate
>>> aggregate(torch.tensor([[1.0, 0.0], [1.2, 0.1], [1e30, -1e30]]), "median")
tensor([1.2000, 0.0000])
"""

from rampart_fl.shared.robust.base import Context, Report, Rows, State, Verdict
from rampart_fl.shared.robust.pipeline import Pipeline, aggregate

__all__ = ["Context", "Pipeline", "Report", "Rows", "State", "Verdict", "aggregate"]
