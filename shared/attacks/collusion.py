"""Attacks whose attackers share their updates: the base classes, and statistics of updates.

Legend: F attackers, B known honest updates, D coordinates.
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from rampart_fl.shared.attacks.base import Knowledge, KnowledgeLevel, ModelAttack, finite_rows
from rampart_fl.shared.robust.base import Rows


class CollusionAttack(ModelAttack):
    """Attackers know each other's honest updates, and all attackers upload the same vector."""

    knowledge: ClassVar[KnowledgeLevel] = "partial"
    identical: ClassVar[bool] = True
    knows: Literal["partial", "full"] = Field(default="partial")
    """The updates that the attack uses. `partial`: the colluders' honest updates; `full`: the
    updates of all benign clients."""

    @property
    def asks_for(self) -> KnowledgeLevel:
        return self.knows


class MomentAttack(CollusionAttack):
    """A colluding attack that uses the mean and the standard deviation of updates."""

    statistics_over: Literal["benign", "all"] = "benign"
    """The updates over which statistics are computed. `benign`: only the benign updates; `all`:
    also the attackers' honest updates."""

    def population(self, own_FD: Tensor, knowledge: Knowledge) -> Tensor:
        """The updates (B, D) over which the statistics are computed."""
        known_BD, own_MD = honest(knowledge), knowledge.colluders_MD
        if own_MD is None and knowledge.level == "full":
            own_MD = own_FD
        if self.statistics_over == "benign" or own_MD is None:
            return known_BD
        finite_MD = finite_rows(own_MD)
        # Under partial knowledge, `honest_BD` already contains the colluders' finite updates.
        if finite_MD is known_BD or (finite_MD is not own_MD and finite_MD.equal(known_BD)):
            return known_BD
        return torch.cat([known_BD, finite_MD.to(known_BD)])


def honest(knowledge: Knowledge) -> Tensor:
    """The known honest updates (B, D). `ModelAttack.apply` has checked that B > 0."""
    assert knowledge.honest_BD is not None
    return knowledge.honest_BD


def mean_of(updates_BD: Tensor) -> Tensor:
    """The coordinate-wise mean (D,) in float64."""
    return updates_BD.mean(dim=0, dtype=torch.float64)


def moments(updates_BD: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (D,), and standard deviation (D,) with Bessel's correction (0 if there is only one row).

    The mean and the standard deviation are in float64.

    >>> moments(torch.tensor([[0.0], [2.0]]))
    (tensor([1.], dtype=torch.float64), tensor([1.4142], dtype=torch.float64))
    """
    rows = Rows.of(updates_BD)
    mean_D = torch.empty(rows.dim, dtype=torch.float64, device=rows.device)
    std_D = torch.zeros_like(mean_D)
    for start, stop, chunk_BC in rows.chunks():
        chunk_BC = chunk_BC.double()
        mean_D[start:stop] = chunk_BC.mean(dim=0)
        if len(chunk_BC) > 1:
            std_D[start:stop] = chunk_BC.std(dim=0, correction=1)
    return mean_D, std_D


def everyone(upload_D: Tensor, own_FD: Tensor) -> Tensor:
    """One copy of the upload for each attacker: a tensor (F, D) in the dtype of `own_FD`."""
    return upload_D.to(own_FD).expand_as(own_FD).clone()
