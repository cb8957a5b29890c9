"""Gap inflation: claims a false loss gap, that is, false progress in local training."""

from typing import ClassVar

from rampart_fl.shared.attacks.base import Knowledge
from rampart_fl.shared.attacks.model import attacks
from rampart_fl.shared.attacks.wrapping import Wrapper


@attacks.register("gap_inflation")
class GapInflation(Wrapper):
    """Claims the loss gap `gap`, so that the inner attack's update gets a large weight.

    If `gap` is large, a rule that weights updates by a softmax of loss gaps gives the attackers
    nearly all the weight.

    >>> GapInflation(gap=500).report({"loss_gap": 0.5}, Knowledge(4, 1))
    {'loss_gap': 500.0}
    """

    paper = "Rampart: adaptive against PAwBRoFL, equations 8 and 9"
    claims: ClassVar[str] = "loss_gap"
    gap: float = 1e6
    """The claimed loss gap, in the units of the loss."""

    def claim(self, numbers: dict[str, float], knowledge: Knowledge) -> dict[str, float]:
        return {**super().claim(numbers, knowledge), self.claims: self.gap}
