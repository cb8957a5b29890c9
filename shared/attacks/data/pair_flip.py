"""Pair flipping: some labels move to the next class."""

import torch
from pydantic import Field
from torch import Tensor

from rampart_fl.shared.attacks.base import DataAttack
from rampart_fl.shared.attacks.data import attacks


@attacks.register("pair_flip")
class PairFlip(DataAttack):
    """With probability `rate`, a label y becomes (y + 1) mod C, where C is the number of classes.

    >>> PairFlip(rate=1).apply(torch.zeros(2, 1), torch.tensor([0, 2]), 3, torch.Generator())[1]
    tensor([1, 0])
    """

    paper = "Han et al., Co-teaching, 2018; SDEA, appendix D.1"
    rate: float = Field(default=0.5, ge=0, le=1)
    """Probability that a label is flipped."""

    def apply(
        self, x: Tensor, y: Tensor, classes: int, draws: torch.Generator, attacker: int = 0
    ) -> tuple[Tensor, Tensor]:
        flips = torch.rand(len(y), generator=draws).to(y.device) < self.rate
        return x.clone(), torch.where(flips, (y + 1) % classes, y)
