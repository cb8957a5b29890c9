"""Fang's local model poisoning, against Krum and against trimmed mean or median.

Legend: F attackers, B known honest updates, M crafted copies, D coordinates.
"""

import math
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from rampart_fl.shared.attacks.base import Knowledge
from rampart_fl.shared.attacks.collusion import CollusionAttack, everyone, honest, mean_of, moments
from rampart_fl.shared.attacks.model import attacks
from rampart_fl.shared.attacks.noise import per_attacker, uniform
from rampart_fl.shared.robust import linalg
from rampart_fl.shared.robust.base import Rows
from rampart_fl.shared.robust.rules.krum import scores


@attacks.register("fang")
class Fang(CollusionAttack):
    """Moves the aggregate against s, the signs of the honest mean.

    `krum`: all attackers upload u = -λ s. The value λ starts at an upper bound, and is halved until
    Krum would pick u. `trimmed_mean` and `median`: every attacker draws each coordinate from
    an interval. The interval is below the honest mean where s = 1, and above the honest mean where
    s = -1. With full knowledge, the interval begins at e, which is the smallest honest value of the
    coordinate if s = 1, and the largest if s = -1. The interval ends at e / b if e and s have the
    same sign; otherwise, the interval ends at b e. With partial knowledge, the interval is from
    μ - 3 s σ to μ - 4 s σ. Here, μ is the mean and σ the standard deviation of the known updates.

    >>> knowledge = Knowledge(20, 2, torch.tensor([[1.0], [2.0]]))
    >>> crafted = Fang(knows="full").apply(torch.zeros(2, 1), knowledge)
    >>> bool(((crafted >= 0.5) & (crafted <= 1)).all())
    True
    """

    paper = "Fang et al., Local model poisoning attacks, 2020; MSDFL, section VII"
    identical: ClassVar[bool] = False
    version: Literal["krum", "trimmed_mean", "median"] = "trimmed_mean"
    """The rule that is attacked. As in the paper, the attack is the same for trimmed mean and
    median."""
    b: float = Field(default=2.0, gt=1)
    """With full knowledge, an uploaded value and the extreme honest value differ by at most the
    factor `b`."""
    least: float = Field(default=1e-5, gt=0)
    """The halving of λ stops when λ is below `least`."""

    def craft(self, own_FD: Tensor, knowledge: Knowledge) -> Tensor:
        known_BD = honest(knowledge)
        if self.version == "krum":
            return everyone(self._against_krum(known_BD, knowledge.attackers), own_FD)
        near_D, far_D = self._interval(known_BD)
        draws = per_attacker(knowledge, self.name, len(own_FD))
        return torch.stack([uniform(near_D, far_D, draw) for draw in draws])

    def _interval(self, known_BD: Tensor) -> tuple[Tensor, Tensor]:
        """Bounds (D,) of the draws; the first is the bound nearer to the honest updates."""
        mean_D, std_D = moments(known_BD)
        signs_D = mean_D.sign()
        if self.knows == "partial":
            return mean_D - 3 * signs_D * std_D, mean_D - 4 * signs_D * std_D
        lowest_D, highest_D = (end_D.double() for end_D in known_BD.aminmax(dim=0))
        extreme_D = torch.where(signs_D > 0, lowest_D, highest_D)
        extreme_D = torch.where(signs_D == 0, mean_D, extreme_D)
        # If the extreme value has the sign s, the direction -s leads towards zero. Otherwise, the
        # direction -s leads away from zero.
        shrinks_D = extreme_D * signs_D > 0
        far_D = torch.where(shrinks_D, extreme_D / self.b, extreme_D * self.b)
        return extreme_D, torch.where(signs_D == 0, mean_D, far_D)

    def _against_krum(self, known_BD: Tensor, attackers: int) -> Tensor:
        """The first upload -λ s (D,) that Krum picks, or the first upload with λ below `least`."""
        rows = Rows.of(known_BD)
        mean_D = mean_of(known_BD)
        signs_D = mean_D.sign()
        squared_BB = linalg.squared_distances(rows)
        products_B = linalg.dots(rows, signs_D)
        squares_B = linalg.norms(rows).square()
        size = float(signs_D.square().sum())

        def picked(strength: float) -> bool:
            cross_B = squares_B + 2 * strength * products_B + strength**2 * size
            return crafted_wins(squared_BB, cross_B.clamp(min=0), attackers)

        strength = upper_bound(squared_BB, squares_B.sqrt(), rows.dim, attackers)
        # If the distances overflow, λ is not finite, and halving would never end.
        while math.inf > strength >= self.least and not picked(strength):
            strength /= 2
        return -strength * signs_D


def upper_bound(squared_BB: Tensor, lengths_B: Tensor, dim: int, f: int) -> float:
    """The first λ to try, computed from the B known honest updates x_i.

    It is λ0 = min_i score_i / ((B - f - 1) sqrt(D)) + max_i |x_i| / sqrt(D), where D is the number
    of coordinates.

    score_i is the sum of the distances from the honest update x_i to the B - 2 other honest updates
    that are nearest to x_i. With n clients, f attackers and full knowledge, B = n - f. Thus B - 2
    equals n - f - 2, the number of neighbours in Krum's scores. Instead of |x_i|, the paper uses
    the distance between the client's model and the received model. This distance equals |x_i|,
    because the update x_i is the difference between these two models.

    >>> points = torch.tensor([[0.0], [1.0], [3.0]], dtype=torch.float64)
    >>> upper_bound((points - points.T).square(), torch.tensor([0.0, 1.0, 3.0]), dim=1, f=0)
    3.5
    """
    nearest = float(scores(squared_BB.sqrt(), 0).min())
    reach = nearest / max(len(squared_BB) - f - 1, 1) + float(lengths_B.max())
    return reach / math.sqrt(dim)


def crafted_wins(squared_BB: Tensor, cross_B: Tensor, attackers: int) -> bool:
    """Whether Krum picks one of M equal crafted rows.

    Args:
        squared_BB: squared distances between the known honest updates.
        cross_B: squared distances between the crafted row and the honest updates.
        attackers: the number M of attackers.
    """
    known = len(squared_BB)
    total = known + attackers
    squared_NN = torch.zeros(total, total, dtype=torch.float64)
    squared_NN[:known, :known] = squared_BB
    squared_NN[known:, :known] = cross_B
    squared_NN[:known, known:] = cross_B[:, None]
    scores_N = scores(squared_NN, attackers)
    return bool(scores_N[known:].min() < scores_N[:known].min())
