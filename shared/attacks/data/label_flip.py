"""Label flipping: all labels are shifted by one class or mirrored."""

from typing import Literal

import torch
from torch import Tensor

from rampart_fl.shared.attacks.base import DataAttack
from rampart_fl.shared.attacks.data import attacks


@attacks.register("label_flip")
class LabelFlip(DataAttack):
    """Changes every label to the next class, or to the mirrored class.

    If there are C classes, label y becomes (y + 1) mod C, or C - 1 - y in the mirrored variant.

    In the mirrored variant with an odd number of classes, the middle class keeps its label.

    >>> labels = torch.tensor([0, 1, 9])
    >>> LabelFlip().apply(torch.zeros(3, 2), labels, 10, torch.Generator())[1]
    tensor([1, 2, 0])
    >>> LabelFlip(variant="mirror").apply(torch.zeros(3, 2), labels, 10, torch.Generator())[1]
    tensor([9, 8, 0])
    """

    paper = "FedCAP, section VI-A3; the variant mirror: FedCAP's code and ByzFL"
    variant: Literal["next", "mirror"] = "next"
    """With `next`, class (y + 1) mod C replaces class y; with `mirror`, class C - 1 - y replaces
    class y."""

    def apply(
        self, x: Tensor, y: Tensor, classes: int, draws: torch.Generator, attacker: int = 0
    ) -> tuple[Tensor, Tensor]:
        flipped = (y + 1) % classes if self.variant == "next" else classes - 1 - y
        return x.clone(), flipped
