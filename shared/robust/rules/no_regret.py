"""No-Regret: lowers weights along the quasi-gradient; no weight may exceed a cap.

Legend: M rows.
"""

import torch
from pydantic import Field
from torch import Tensor

from rampart_fl.shared.robust import spectral
from rampart_fl.shared.robust.quasi_gradient import QuasiGradientRule, Weighting
from rampart_fl.shared.robust.rules import rules

NEGLIGIBLE = 1e-3
"""The default step size ignores rows whose weight is below this share of the uniform weight."""


@rules.register("no_regret")
class NoRegret(QuasiGradientRule):
    """Lowers the weights of outliers, and caps all weights, until the weighted covariance is small.

    The weights q of the rows sum to 1. As long as ‖Cov_q‖₂ > ξ, each step lowers the weights to
    q_i (1 - s g_i). It then sets q to the KL projection of these weights on the set of all q with
    Σq = 1 and q_i <= 1/((1-ε)m').

    Here, μ_q and Cov_q are the weighted mean and covariance of the rows. For row x_i,
    g_i = (vᵀ(x_i - μ_q))², where v is the top eigenvector of Cov_q. Before the first step, a row is
    removed if more than 2f other rows are farther from it than `radius`; m' rows remain. In the
    step, ε = f/n and s = ηε / (2σ²d) for rows of d coordinates. If f = 0, the cap admits only
    uniform weights, so the result is the mean.

    >>> from rampart_fl.shared.robust import aggregate
    >>> import torch
    >>> aggregate(torch.tensor([[0.0], [0.1], [0.0], [0.1], [10.0]]), "no_regret", f=1)
    tensor([0.0500])
    """

    paper = "PAwBRoFL, algorithm 1 (after Hopkins et al., 2020, and Zhu et al., 2022)"
    breakdown = "f < n/2"
    complexity = "O(n²d + t n³) for t steps"
    passes = "2"
    radius: float | None = Field(default=None, gt=0)
    """Distance above which two rows are far from each other, in the units of the rows. The paper
    uses Ω(√(d log m)). By default, the distance is the diameter of the smallest ball that is
    centred on a row and contains n - f rows. With this default, only the f rows outside the ball
    can be far from a row in the ball. The rule therefore removes no row in the ball. If the rule
    would remove all rows, it removes none."""
    sigma2: float | None = Field(default=None, gt=0)
    """σ², a bound on the covariance of honest rows. If `sigma2` is None, the step s is η / max g;
    rows with a negligible weight are left out of this maximum."""
    eta: float = Field(default=0.5, gt=0, lt=1)
    """η, the step size."""
    max_iterations: int = Field(default=200, ge=1)
    """Largest number of steps. After this number of steps, the rule uses the current weights, and
    reports that they have not converged.
    """

    def weigh(self, distances_MM: Tensor, f: int, dim: int) -> Weighting:
        m = len(distances_MM)
        kept_M = spectral.reachable(distances_MM)
        if not f:
            return Weighting(spectral.uniform(kept_M), 0, True)
        near_M = kept_M & self.prefilter(distances_MM, f)
        kept_M = near_M if bool(near_M.any()) else kept_M
        remaining = int(kept_M.sum())
        weights_M = spectral.uniform(kept_M)
        cap = 1 / ((1 - f / m) * remaining)
        xi = self.threshold(distances_MM, f)
        for step in range(self.max_iterations):
            spectrum = spectral.top(distances_MM, weights_M)
            if spectrum.variance <= xi:
                return Weighting(weights_M, step, True)
            if self.sigma2 is None:
                heavy_M = weights_M >= NEGLIGIBLE / remaining
                size = self.eta / float(spectrum.along_M[heavy_M].max())
            else:
                size = self.eta * f / m / (2 * self.sigma2 * dim)
            lowered_M = weights_M * (1 - size * spectrum.along_M).clamp(min=0)
            if not bool(lowered_M.any()):
                break
            before_M, weights_M = weights_M, spectral.capped_simplex(lowered_M, cap)
            if torch.equal(before_M, weights_M):
                break
        return Weighting(weights_M, step + 1, False)

    def prefilter(self, distances_MM: Tensor, f: int) -> Tensor:
        """Mask (M,): True for a row if at most 2f other rows are farther from it than `radius`."""
        squared = (
            4 * spectral.nearest(distances_MM, len(distances_MM) - f)[0]
            if self.radius is None
            else self.radius**2
        )
        return (distances_MM > squared).sum(dim=1) <= 2 * f
