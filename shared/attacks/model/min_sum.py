"""Min-sum: shifts the mean until the sum of its distances to honest updates reaches a limit.

Legend: B known updates, X points.
"""

from torch import Tensor

from rampart_fl.shared.attacks.model import attacks
from rampart_fl.shared.attacks.optimized import Line, LineSearchAttack

HALVINGS = 200
"""Number of halvings of an interval: enough to reach the resolution of float64."""

ROUNDING = 1e-14
"""During the search for γ, a sum of distances may exceed the limit by this fraction of the limit.
After the search, `craft` compares the upload's sum of distances with the exact limit."""


@attacks.register("min_sum")
class MinSum(LineSearchAttack):
    """Shifts the mean until the sum of its distances to known updates reaches a limit.

    The upload is u = μ + γ p, where μ is the mean of the known updates x_i, and `perturbation`
    chooses the direction p. By default, γ is the largest number for which
    Σ_i |u - x_i|² ≤ max_i Σ_j |x_i - x_j|².

    For any point v, the sum of squared distances to the known updates is B |v - μ|² larger than the
    same sum for μ. The sum for u therefore equals the limit if u is as far from μ as the farthest
    x_i. Hence, the largest γ is max_i |x_i - μ| / |p|. If `squared` is false, the distances are not
    squared. The sum of distances is convex in γ, so bisection finds the largest γ for which the sum
    does not exceed the limit.

    >>> import torch
    >>> from rampart_fl.shared.attacks import craft
    >>> craft("min_sum", torch.tensor([[-1.0], [0.0], [1.0]]), n=5, m=2)
    tensor([-1.])
    """

    paper = "Shejwalkar and Houmansadr, Manipulating the Byzantine, 2021; FedCAP, section VI-A3"

    squared: bool = True
    """Whether distances are squared before they are added up."""

    def cost(self, distances_BX: Tensor) -> Tensor:
        return (distances_BX.square() if self.squared else distances_BX).sum(dim=0)

    def largest(self, line: Line, limit: float) -> float | None:
        if self.squared:
            farthest = line.squares_B.max() if self.bound == "max" else line.squares_B.min()
            return float((farthest / line.curvature).sqrt())
        # With only two known updates, the sum of distances equals the limit at every point between
        # these updates. Rounding errors alone can then lift the computed sum above the limit.
        limit *= 1 + ROUNDING
        # No γ above `high` is feasible. By the triangle inequality, the sum of distances at γ is at
        # least B γ |p| - S, where S is the sum of distances at γ = 0.
        at_mean = float(self.cost(line.distances(0)[:, None]))
        high = (limit + at_mean) / (len(line.squares_B) * line.curvature**0.5)
        low = 0.0 if at_mean <= limit else self._lowest(line, high)
        if self._sum(line, low) > limit:
            return None
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self._sum(line, middle) <= limit else (low, middle)
        return low

    def _sum(self, line: Line, gamma: float) -> float:
        return float(line.distances(gamma).sum())

    def _lowest(self, line: Line, high: float) -> float:
        """The γ in [0, high] with the smallest sum of distances; this sum is convex in γ."""
        low = 0.0
        for _ in range(HALVINGS):
            third = (high - low) / 3
            if self._sum(line, low + third) <= self._sum(line, high - third):
                high -= third
            else:
                low += third
        return (low + high) / 2
