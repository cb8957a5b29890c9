"""A sleeper: behaves honestly before a given round, and attacks from that round on."""

from pydantic import Field
from torch import Tensor

from rampart_fl.shared.attacks.base import Knowledge
from rampart_fl.shared.attacks.model import attacks
from rampart_fl.shared.attacks.wrapping import Wrapper


@attacks.register("sleeper")
class Sleeper(Wrapper):
    """Uploads the honest update before round `wakes`, and runs the inner attack from this round on.

    >>> import torch
    >>> sleeper = Sleeper(attack="sign_flip", wakes=3)
    >>> [float(sleeper.apply(torch.ones(1, 1), Knowledge(4, 1, round=r))) for r in (2, 3)]
    [1.0, -1.0]
    """

    paper = "Rampart: against detectors that trust a good record"
    wakes: int = Field(default=10, ge=0)
    """First round of the attack."""

    def craft(self, own_FD: Tensor, knowledge: Knowledge) -> Tensor:
        if knowledge.round < self.wakes:
            return own_FD.clone()
        return super().craft(own_FD, knowledge)

    def claim(self, numbers: dict[str, float], knowledge: Knowledge) -> dict[str, float]:
        return numbers if knowledge.round < self.wakes else super().claim(numbers, knowledge)
