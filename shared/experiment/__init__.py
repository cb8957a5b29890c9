"""An experiment: the file that says everything about a federation, and its tables.

Here belong the schema, sweeps, the shipped experiments, and what follows from the file alone: who
is drawn, who attacks, what an eviction means. Nothing here needs torch. What builds data, models or
rules belongs in `learning`, `attacks` and `robust`.
"""

from rampart_fl.shared.experiment.schema import Experiment

__all__ = ["Experiment"]
