"""An experiment: the file that defines a federation completely, and the tables of that file.

This package holds the schema, sweeps, the shipped experiments, and everything that the file alone
determines: which clients are selected, which clients attack, and what an eviction means. Nothing
here needs torch. Code that builds data, models or rules belongs in `learning`, `attacks` and
`robust`.
"""

from rampart_fl.shared.experiment.schema import Experiment

__all__ = ["Experiment"]
