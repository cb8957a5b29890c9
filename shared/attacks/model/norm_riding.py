"""Norm riding: opposes the honest direction with the largest norm that the detectors accept.

Legend: F attackers whose uploads are crafted in one call, M attackers of the round, B known honest
updates, K = B + M clients, D coordinates.
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
"""To find the largest accepted norm, the attack doubles the norm at most this many times. If the
detectors still accept the uploads, the attack assumes that the detectors accept every norm."""
HALVINGS = 20
"""Number of halvings of the interval that contains the largest accepted norm."""


@attacks.register("norm_riding")
class NormRiding(ModelAttack):
    """Turns the calibrated update against the honest direction, just below the detectors' limit.

    The upload is u = -L c / |c| - o. Here, L is the norm to reach, o = sent - reference is an
    offset, and c = o + own update is the honest calibrated update.

    In these formulas, `sent` is the model that the attacker received, and `reference` is the global
    model. The server calibrates an upload by adding the offset o. The calibrated update therefore
    points against c and has norm L. The attacker uploads -o if c is 0.

    An attacker without knowledge uses L = (1 - margin) · threshold, and assumes that it received
    the global model (o = 0). The assumption o = 0 is correct if all clients receive the same model.
    If models are customized, the norm of the calibrated update differs from L by up to |o|.

    An attacker with full knowledge knows o exactly. The attacker also finds the largest norm with
    which the server's own detectors accept all attackers and record no evidence against any
    attacker. This norm replaces `threshold` in the formula for L. If the detectors accept every
    norm, the attacker keeps `threshold`. Detectors that judge raw uploads can reject every opposing
    update, even the zero vector. If the detectors reject every opposing update, the calibrated
    update is the smallest positive multiple of c that they accept.

    >>> import torch
    >>> NormRiding(threshold=10, margin=0).apply(torch.tensor([[3.0, 4.0]]), Knowledge(4, 1))
    tensor([[-6., -8.]])
    """

    paper = "Rampart: adaptive against FedCAP, section V-C, and against our own detectors"
    threshold: float = Field(default=10.0, gt=0)
    """The value that the attacker assumes for the detector's threshold T_norm."""
    margin: float = Field(default=1e-3, ge=0, lt=1)
    """How far the norm stays below the threshold, as a fraction of the threshold."""
    knows: Literal["agnostic", "full"] = "agnostic"
    """`full`: the attacker knows the global model, all updates and the server's detectors;
    `agnostic`: it knows none of these."""

    @property
    def asks_for(self) -> KnowledgeLevel:
        return self.knows

    def craft(self, own_FD: Tensor, knowledge: Knowledge) -> Tensor:
        offset_FD = _offset(own_FD, knowledge.sent_FD, knowledge)
        limit = self._limit(knowledge) if self.knows == "full" else self.threshold
        return (
            opposed_updates(own_FD.double() + offset_FD, limit - self.margin * abs(limit))
            - offset_FD
        )

    def _limit(self, knowledge: Knowledge) -> float:
        """The largest reach (see `opposed_updates`) that the screening detectors accept."""
        plan = knowledge.plan
        screens = [] if plan is None else [d for d in plan.detectors if _simple(d)]
        if not screens:
            return self.threshold
        assert knowledge.honest_BD is not None
        assert knowledge.colluders_MD is not None
        colluders_MD, honest_BD = knowledge.colluders_MD.double(), knowledge.honest_BD.double()
        offset_MD = _offset(colluders_MD, knowledge.colluders_sent_MD, knowledge)
        rows_BD = honest_BD + _offset(honest_BD, knowledge.honest_sent_BD, knowledge)

        def accepted(reach: float) -> bool:
            ridden_MD = opposed_updates(colluders_MD + offset_MD, reach)
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


def opposed_updates(honest_FD: Tensor, reach: float) -> Tensor:
    """Updates (F, D) of norm `reach` that point against the honest updates.

    If `reach` is between -1 and 0, the result does not oppose the honest updates: it is -`reach`
    times the honest updates.

    >>> honest_FD = torch.tensor([[3.0, 4.0]])
    >>> opposed_updates(honest_FD, 10), opposed_updates(honest_FD, -0.5)
    (tensor([[-6., -8.]]), tensor([[1.5000, 2.0000]]))
    """
    if reach < 0:
        return -reach * honest_FD
    units_FD: Tensor = (honest_FD / honest_FD.norm(dim=1, keepdim=True)).nan_to_num(0.0)
    return -reach * units_FD


def _last(accepted: Callable[[float], bool], low: float, high: float) -> float:
    """Finds the largest accepted reach by bisection; `low` is accepted, and `high` is rejected."""
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if accepted(middle) else (low, middle)
    return low


def passes(
    screens: Sequence[Detector], rows: Rows, hostile: Collection[str], knowledge: Knowledge
) -> bool:
    """Whether detectors in their initial state accept the hostile rows and record no evidence."""
    context = Context(knowledge.round, knowledge.seed, knowledge.reference_D)
    return all(
        verdict.decision == "accepted" and not verdict.evidence
        for screen in screens
        for verdict in screen.apply(rows, screen.init(rows.dim), context)[0]
        if verdict.client in hostile
    )


def _simple(detector: Detector) -> bool:
    """Whether a detector runs before the rule and uses only the rows."""
    return detector.when == "screen" and not detector.needs()


def _offset(updates_FD: Tensor, sent_FD: Tensor | None, knowledge: Knowledge) -> Tensor:
    """The vectors (F, D), in float64, that the server adds to the uploads before it judges them."""
    plan, zeros_FD = knowledge.plan, updates_FD.new_zeros(updates_FD.shape).double()
    if sent_FD is None or knowledge.reference_D is None:
        return zeros_FD
    if plan is not None and not plan.judges_models:
        return zeros_FD
    return sent_FD.to(zeros_FD) - knowledge.reference_D.to(zeros_FD)
