"""Experiments: the file that defines a federation completely, and the tables in this file.

This package contains the schema, sweeps and the shipped experiments. It also contains the code for
everything that the file alone determines, such as which clients are selected and which clients
attack. No module of this package needs torch. Code that builds data, models or rules belongs in
`learning`, `attacks` and `robust`.
"""

from rampart_fl.shared.experiment.schema import Experiment

__all__ = ["Experiment"]
