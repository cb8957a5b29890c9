"""Symmetric flipping: some labels move to another class, chosen at random."""

import torch
from pydantic import Field
from torch import Tensor

from rampart_fl.shared.attacks.base import DataAttack
from rampart_fl.shared.attacks.data import attacks


@attacks.register("symmetric_flip")
class SymmetricFlip(DataAttack):
    """With probability `rate`, a label becomes one of the other labels, all equally likely.

    >>> flip, labels = SymmetricFlip(rate=1), torch.tensor([0, 1])
    >>> flip.apply(torch.zeros(2, 1), labels, 2, torch.Generator())[1]
    tensor([1, 0])
    """

    paper = "Van Rooyen et al., Learning with symmetric label noise, 2015; SDEA, appendix D.1"
    rate: float = Field(default=0.5, ge=0, le=1)
    """Probability that a label is flipped."""

    def apply(
        self, x: Tensor, y: Tensor, classes: int, draws: torch.Generator, attacker: int = 0
    ) -> tuple[Tensor, Tensor]:
        flips = torch.rand(len(y), generator=draws).to(y.device) < self.rate
        steps = torch.randint(1, max(classes, 2), (len(y),), generator=draws).to(y.device)
        return x.clone(), torch.where(flips, (y + steps) % classes, y)
