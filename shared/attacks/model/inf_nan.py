"""Updates with coordinates that are NaN or infinite."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from rampart_fl.shared.attacks.base import Knowledge, ModelAttack
from rampart_fl.shared.attacks.model import attacks
from rampart_fl.shared.attacks.noise import per_attacker

VALUES = {"nan": torch.nan, "inf": torch.inf, "negative_inf": -torch.inf}


@attacks.register("inf_nan")
class InfNaN(ModelAttack):
    """Makes a share of the update's coordinates NaN or infinite; by default, all coordinates.

    >>> InfNaN(value="inf").apply(torch.zeros(1, 2), Knowledge(4, 1))
    tensor([[inf, inf]])
    """

    paper = "Flower's and ByzFL's issue trackers: one such client breaks a plain mean"
    value: Literal["nan", "inf", "negative_inf"] = "nan"
    """The value written to the attacked coordinates."""
    share: float = Field(default=1.0, gt=0, le=1)
    """How many coordinates change, as a fraction of all coordinates. The changed coordinates are
    drawn at random; at least one coordinate changes."""

    def craft(self, own_FD: Tensor, knowledge: Knowledge) -> Tensor:
        out_FD = own_FD.clone()
        dim = own_FD.shape[1]
        count = max(1, round(self.share * dim))
        for row_D, draw in zip(
            out_FD, per_attacker(knowledge, self.name, len(out_FD)), strict=True
        ):
            row_D[torch.randperm(dim, generator=draw)[:count].to(row_D.device)] = VALUES[self.value]
        return out_FD
