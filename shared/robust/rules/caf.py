"""CAF: lowers outliers' weights in steps, and uses the weights that give the smallest covariance.

Legend: M rows, D coordinates.
"""

import torch
from torch import Tensor

from rampart_fl.shared.robust import linalg, spectral
from rampart_fl.shared.robust.base import Context, Report, Rows, Rule, State
from rampart_fl.shared.robust.rules import rules


@rules.register("caf")
class CAF(Rule):
    """Lowers outliers' weights in steps, and uses the weights that give the smallest covariance.

    The weights c_i of all rows start at 1. As long as the sum of the weights exceeds n - 2f, each
    step sets c_i to c_i (1 - τ_i / max τ), where τ_i = (vᵀ(x_i - μ_c))² for row x_i. Here, μ_c and
    Cov_c are the mean and the covariance of the rows with the weights c, and v is the top
    eigenvector of Cov_c. The maximum of τ is taken over rows with c > 0. The result is the μ_c with
    the smallest ‖Cov_c‖₂ among all steps. If f = 0, the result is the mean.

    >>> from rampart_fl.shared.robust import aggregate
    >>> aggregate(torch.tensor([[0.0], [0.0], [0.0], [0.0], [10.0]]), "caf", f=1)
    tensor([0.])
    """

    paper = (
        "Allouah et al., Towards trustworthy federated learning with untrusted participants, 2025"
    )
    breakdown = "f < n/2"
    complexity = "O(n²d + n⁴)"
    passes = "2"

    def apply(self, rows: Rows, state: State, context: Context) -> tuple[Tensor, State, Report]:
        f = self.require_majority(rows)
        weights_M, steps = filter_weights(linalg.squared_distances(rows), f)
        report = Report(self.name, rows.ids, {"weight": weights_M}, {"iterations": steps})
        return rows.combine(weights_M), state, report


def filter_weights(squared_MM: Tensor, f: int) -> tuple[Tensor, int]:
    """The weights (M,) of the step with the smallest ‖Cov_c‖₂, and the number of steps.

    >>> filter_weights(torch.zeros(3, 3, dtype=torch.float64), 1)[0]
    tensor([0.3333, 0.3333, 0.3333], dtype=torch.float64)
    """
    m = len(squared_MM)
    counts_M = torch.ones(m, dtype=torch.float64)
    counts_M[~(squared_MM.isfinite().sum(dim=1) > m / 2)] = 0
    best_M, least, steps = counts_M / counts_M.sum(), float("inf"), 0
    while f and float(counts_M.sum()) > m - 2 * f:
        weights_M = counts_M / counts_M.sum()
        spectrum = spectral.top(squared_MM, weights_M)
        steps += 1
        if spectrum.variance < least:
            best_M, least = weights_M, spectrum.variance
        widest = float(spectrum.along_M.max())
        if widest <= 0:
            break
        counts_M = counts_M * (1 - spectrum.along_M / widest)
    return best_M, steps
