"""Mimicry: copies one honest update, so that this update gets more weight than it should."""

from typing import Literal

from pydantic import Field
from torch import Tensor

from rampart_fl.shared.attacks.base import Knowledge
from rampart_fl.shared.attacks.collusion import CollusionAttack, everyone, honest
from rampart_fl.shared.attacks.model import attacks


@attacks.register("mimic")
class Mimic(CollusionAttack):
    """Uploads u = x_target, a copy of one honest client's update.

    The copies look honest. Because of the copies, every other honest update is rarer among all
    updates. A rule that drops rare updates then drops honest updates.

    >>> import torch
    >>> knowledge = Knowledge(3, 1, torch.tensor([[1.0], [5.0]]))
    >>> Mimic(target=1).apply(torch.zeros(1, 1), knowledge)
    tensor([[5.]])
    """

    paper = "Karimireddy et al., Byzantine-robust learning on heterogeneous datasets, 2022; ByzFL"
    knows: Literal["partial", "full"] = "full"
    """The updates that the attack can copy. `full`: the updates of benign clients; `partial`: the
    honest updates of fellow attackers."""
    target: int = Field(default=0, ge=0)
    """Position of the copied client among the known clients, which are sorted by id. If fewer
    clients are known in a round, the position is counted from the first one again."""

    def craft(self, own_FD: Tensor, knowledge: Knowledge) -> Tensor:
        known_BD = honest(knowledge)
        return everyone(known_BD[self.target % len(known_BD)], own_FD)
