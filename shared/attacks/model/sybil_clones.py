"""Sybil clones: one hostile update that several clients upload.

Legend: F attackers, D coordinates.
"""

from dataclasses import replace
from typing import ClassVar, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from rampart_fl.shared.attacks.base import LEVELS, Knowledge, KnowledgeLevel
from rampart_fl.shared.attacks.model import attacks
from rampart_fl.shared.attacks.noise import normal, per_attacker
from rampart_fl.shared.attacks.wrapping import Wrapper


@attacks.register("sybil_clones")
class SybilClones(Wrapper):
    """Every attacker uploads a copy of the first attacker's crafted update.

    Attacker f uploads v + jitter |v| e_f, where v is the first attacker's upload, and e_f is a
    random unit vector.

    Without jitter, all copies are equal. With a small jitter, the copies differ, so a comparison of
    bytes does not reveal the copies.

    >>> own_FD = torch.tensor([[1.0], [7.0]])
    >>> SybilClones().apply(own_FD, Knowledge(4, 2, honest_BD=own_FD, colluders_MD=own_FD))
    tensor([[-1.],
            [-1.]])
    """

    paper = "Fung et al., The limitations of federated learning in Sybil settings, 2020"
    knowledge: ClassVar[KnowledgeLevel] = "partial"
    jitter: float = Field(default=0.0, ge=0)
    """Norm of the random part of a copy, as a share of the norm of the copied upload."""

    @model_validator(mode="after")
    def _attackers_can_craft_the_same_update(self) -> Self:
        # Attackers know each other's honest updates, but not each other's samples.
        if self.attack.uses_samples:
            raise ValueError(f"clones of {self.attack.name!r} differ: each uses its own samples")
        return self

    @property
    def asks_for(self) -> KnowledgeLevel:
        return max(self.knowledge, self.attack.asks_for, key=LEVELS.index)

    def craft(self, own_FD: Tensor, knowledge: Knowledge) -> Tensor:
        own_MD = own_FD if knowledge.colluders_MD is None else knowledge.colluders_MD
        sent_MD = knowledge.colluders_sent_MD
        # The clones copy the first attacker whose training has not diverged.
        first = int(own_MD.isfinite().all(dim=1).byte().argmax())
        one = slice(first, first + 1)
        leader = replace(knowledge, first=0, sent_FD=None if sent_MD is None else sent_MD[one])
        clone_D = self.attack.apply(own_MD[one].to(own_FD), leader)[0].double()
        draws = per_attacker(knowledge, self.name, len(own_FD))
        noise_FD = torch.stack([normal(len(clone_D), draw) for draw in draws]).to(clone_D)
        noise_FD *= self.jitter * clone_D.norm() / noise_FD.norm(dim=1, keepdim=True)
        return clone_D + noise_FD
