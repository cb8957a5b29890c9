"""Min-max: shifts the mean until its largest distance to an honest update reaches a limit.

Legend: B known updates, X points.
"""

from torch import Tensor

from rampart_fl.shared.attacks.model import attacks
from rampart_fl.shared.attacks.optimized import Line, LineSearchAttack


@attacks.register("min_max")
class MinMax(LineSearchAttack):
    """Shifts the mean until its largest distance to a known update reaches a limit.

    The upload is u = μ + γ p, where μ is the mean of the known updates x_i, and `perturbation`
    chooses the direction p. By default, γ is the largest number for which
    max_i |u - x_i| ≤ max_ij |x_i - x_j|.

    This γ is min_i (-b_i + sqrt(b_i² + a (limit² - |μ - x_i|²))) / a. In this formula, a = |p|²,
    b_i = p·(μ - x_i), and `limit` is max_ij |x_i - x_j|, the largest distance between two known
    updates.

    >>> import torch
    >>> from rampart_fl.shared.attacks import craft
    >>> craft("min_max", torch.tensor([[-1.0], [0.0], [1.0]]), n=5, m=2)
    tensor([-1.])
    """

    paper = "Shejwalkar and Houmansadr, Manipulating the Byzantine, 2021"

    def cost(self, distances_BX: Tensor) -> Tensor:
        return distances_BX.amax(dim=0)

    def largest(self, line: Line, limit: float) -> float | None:
        a, b_B = line.curvature, line.slopes_B
        slack_B = limit**2 - line.squares_B
        inner_B = b_B.square() + a * slack_B
        if bool((inner_B < 0).any()):
            return None
        root_B = inner_B.sqrt()
        # For b > 0, an equivalent formula avoids the difference of nearly equal numbers.
        ends_B = (slack_B / (b_B + root_B)).where(b_B > 0, (root_B - b_B) / a)
        gamma = float(ends_B.min())
        starts_B = -(b_B + root_B) / a
        return gamma if gamma >= max(0.0, float(starts_B.max())) else None
