"""Riding the detector: the largest update against the honest direction that is let through.

Legend: F attackers whose uploads are crafted here, M attackers of the round, B honest updates that
are known, K = B + M clients, D coordinates.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from rampart_fl.shared.attacks.base import Knowledge, KnowledgeLevel, ModelAttack
from rampart_fl.shared.attacks.model import attacks
from rampart_fl.shared.robust.base import Context, Detector, Rows

DOUBLINGS = 60
"""Doublings of the length after which a detector is taken to accept any."""
HALVINGS = 20
"""Halvings of the interval that the threshold lies in."""


@attacks.register("norm_riding")
class NormRiding(ModelAttack):
    """u = -L c / |c| - o, with o = sent - reference and c = o + own update.

    o is what the server adds to calibrate an upload, so the calibrated update runs against the
    honest one c, with norm L. A client that moves nowhere (c = 0) uploads -o.

    Agnostic, L = (1 - margin) threshold, and the model that was sent stands for the reference
    (o = 0): right where all clients are sent one model, and beside the threshold by up to |o| where
    models are customized. With full knowledge o is exact, and instead of `threshold` counts the
    largest length that the server's own detectors accept without a trace of evidence when all
    attackers ride together, unless they accept any. Where they accept no length at all, as they may
    that judge the upload itself, the calibrated update is the smallest accepted share of c.

    >>> import torch
    >>> NormRiding(threshold=10, margin=0).apply(torch.tensor([[3.0, 4.0]]), Knowledge(4, 1))
    tensor([[-6., -8.]])
    """

    paper = "Rampart: adaptive against FedCAP, section V-C, and against our own detectors"
    threshold: float = Field(default=10.0, gt=0)
    """T_norm of the detector, as the attacker believes it to be."""
    margin: float = Field(default=1e-3, ge=0, lt=1)
    """How far below the threshold to stay, as a share of it."""
    knows: Literal["agnostic", "full"] = "agnostic"
    """Whether the global model, all updates and the server's detectors are known."""

    @property
    def asks_for(self) -> KnowledgeLevel:
        return self.knows

    def craft(self, own_FD: Tensor, knowledge: Knowledge) -> Tensor:
        offset_FD = _offset(own_FD, knowledge.sent_FD, knowledge)
        limit = self._limit(knowledge) if self.knows == "full" else self.threshold
        return ride(own_FD.double() + offset_FD, limit - self.margin * abs(limit)) - offset_FD

    def _limit(self, knowledge: Knowledge) -> float:
        """How far the screens let all attackers ride."""
        plan = knowledge.pipeline
        screens = [] if plan is None else [d for d in plan.detectors if _simple(d)]
        if not screens:
            return self.threshold
        assert knowledge.honest_BD is not None
        assert knowledge.colluders_MD is not None
        colluders_MD, honest_BD = knowledge.colluders_MD.double(), knowledge.honest_BD.double()
        offset_MD = _offset(colluders_MD, knowledge.colluders_sent_MD, knowledge)
        rows_BD = honest_BD + _offset(honest_BD, knowledge.honest_sent_BD, knowledge)

        def accepted(reach: float) -> bool:
            ridden_MD = ride(colluders_MD + offset_MD, reach)
            moved = torch.cat([honest_BD, ridden_MD - offset_MD]).norm(dim=1)
            rows = Rows.of(torch.cat([rows_BD, ridden_MD]), metadata={"moved": moved})
            return passes(screens, rows, rows.ids[len(rows_BD) :], knowledge)

        if not accepted(0.0):
            return _last(accepted, -1.0, 0.0)
        low, high = 0.0, float(rows_BD.norm(dim=1).max()) or 1.0
        for _ in range(DOUBLINGS):
            if not accepted(high):
                return _last(accepted, low, high)
            low, high = high, 2 * high
        return self.threshold


def ride(honest_FD: Tensor, reach: float) -> Tensor:
    """Updates (F, D) against the honest ones, `reach` long; for a reach of -1 to 0 that share of
    the honest ones.

    >>> ride(torch.tensor([[3.0, 4.0]]), 10), ride(torch.tensor([[3.0, 4.0]]), -0.5)
    (tensor([[-6., -8.]]), tensor([[1.5000, 2.0000]]))
    """
    if reach < 0:
        return -reach * honest_FD
    units_FD: Tensor = (honest_FD / honest_FD.norm(dim=1, keepdim=True)).nan_to_num(0.0)
    return -reach * units_FD


def _last(accepted: Callable[[float], bool], low: float, high: float) -> float:
    """Where acceptance ends between a reach that is accepted and one that is not."""
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if accepted(middle) else (low, middle)
    return low


def passes(
    screens: Sequence[Detector], rows: Rows, hostile: Collection[str], knowledge: Knowledge
) -> bool:
    """Whether these screens accept the hostile rows, with no evidence against them, in a first
    round.
    """
    context = Context(knowledge.round, knowledge.seed, knowledge.reference_D)
    return all(
        verdict.decision == "accepted" and not verdict.evidence
        for screen in screens
        for verdict in screen.apply(rows, screen.init(rows.dim), context)[0]
        if verdict.client in hostile
    )


def _simple(detector: Detector) -> bool:
    """Whether it judges rows before the rule, and by nothing but the rows."""
    return detector.when == "screen" and not detector.needs()


def _offset(updates_FD: Tensor, sent_FD: Tensor | None, knowledge: Knowledge) -> Tensor:
    """What the server adds to these uploads before it judges them (F, D), in float64."""
    plan, zeros_FD = knowledge.pipeline, updates_FD.new_zeros(updates_FD.shape).double()
    if sent_FD is None or knowledge.reference_D is None:
        return zeros_FD
    if plan is not None and not plan.judges_models:
        return zeros_FD
    return sent_FD.to(zeros_FD) - knowledge.reference_D.to(zeros_FD)
