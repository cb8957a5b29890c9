"""Fast and accurate versions of all operations that read the block of updates (passes over rows).

Rows are read in the order of their ids, products are summed in float64, and no pass copies the
block. `native.backend()` says which kernels are in use.

No code in this package depends on clients or rounds. Code that judges or aggregates rows belongs in
the other packages of `robust`, such as `rules`.
"""

from rampart_fl.shared.robust.linalg.directions import cosines, cosines_to
from rampart_fl.shared.robust.linalg.finite import NonFiniteRows
from rampart_fl.shared.robust.linalg.geometry import geometry, squared_distances
from rampart_fl.shared.robust.linalg.native import backend
from rampart_fl.shared.robust.linalg.ordering import mean_around_median, median, trimmed_mean
from rampart_fl.shared.robust.linalg.products import (
    all_finite,
    combine,
    dots,
    finite_and_squared_norms,
    gram,
    norm,
    norms,
    row,
    squared_norms,
    uniform,
)
from rampart_fl.shared.robust.linalg.signs import signs

__all__ = [
    "NonFiniteRows",
    "all_finite",
    "backend",
    "combine",
    "cosines",
    "cosines_to",
    "dots",
    "finite_and_squared_norms",
    "geometry",
    "gram",
    "mean_around_median",
    "median",
    "norm",
    "norms",
    "row",
    "signs",
    "squared_distances",
    "squared_norms",
    "trimmed_mean",
    "uniform",
]
