"""Filtering: each step removes the most outlying row, and lowers the weights of other outliers.

Legend: M rows.
"""

from torch import Tensor

from rampart_fl.shared.robust import spectral
from rampart_fl.shared.robust.quasi_gradient import QuasiGradientRule, Weighting
from rampart_fl.shared.robust.rules import rules


@rules.register("filtering")
class Filtering(QuasiGradientRule):
    """Lowers the weights of outliers until the weighted covariance is small.

    The weights q of the rows sum to 1. As long as ‖Cov_q‖₂ > ξ, each step sets q_i to
    q_i (1 - g_i / max g), and then divides all weights by their sum.

    Here, μ_q and Cov_q are the weighted mean and covariance of the rows. For row x_i,
    g_i = (vᵀ(x_i - μ_q))², where v is the top eigenvector of Cov_q. Each step removes at least one
    row. If `limited` is true (the default), all steps together remove at most 2f rows. The steps
    stop early if the next step would remove all rows, or would exceed the limit of 2f. If the steps
    stop early, the report says that the weights have not converged.

    >>> from rampart_fl.shared.robust import aggregate
    >>> import torch
    >>> aggregate(torch.tensor([[0.0], [0.0], [0.0], [0.0], [10.0]]), "filtering", f=1)
    tensor([0.])
    """

    paper = "PAwBRoFL, algorithm 2 (after Diakonikolas et al., 2017)"
    breakdown = "f < n/2"
    complexity = "O(n²d + f n³)"
    passes = "2"

    limited: bool = True
    """Whether at most 2f rows are removed, as in the paper's code; the paper's algorithm has no
    such limit."""

    def weigh(self, distances_MM: Tensor, f: int, dim: int) -> Weighting:
        m = len(distances_MM)
        weights_M = spectral.uniform(spectral.reachable(distances_MM))
        if not f:
            return Weighting(weights_M, 0, True)
        xi = self.threshold(distances_MM, f)
        fewest = m - 2 * f if self.limited else 1
        for step in range(m - fewest + 1):
            spectrum = spectral.top(distances_MM, weights_M)
            if spectrum.variance <= xi:
                return Weighting(weights_M, step, True)
            lowered_M = weights_M * (1 - spectrum.along_M / spectrum.along_M.max())
            if int((lowered_M > 0).sum()) < fewest:
                break
            weights_M = lowered_M / lowered_M.sum()
        return Weighting(weights_M, step, False)
