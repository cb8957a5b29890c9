"""Slow poisoning: a drift in one direction that always stays within the range of known updates.

Legend: B known honest updates, D coordinates.
"""

import torch
from pydantic import Field
from torch import Tensor

from rampart_fl.shared.attacks.base import Knowledge
from rampart_fl.shared.attacks.collusion import MomentAttack, everyone, moments
from rampart_fl.shared.attacks.model import attacks
from rampart_fl.shared.seeding import generator


@attacks.register("slow_poison")
class SlowPoison(MomentAttack):
    """Drifts in one fixed direction; the drift grows from round to round.

    The upload is u = clamp(mean + min(strength, pace · (t + 1)) · s · std, lowest, highest), where
    mean, std, lowest and highest are taken over the known updates, in each coordinate.

    In this formula, t is the number of rounds since `from_round`. The vector s has random signs and
    is drawn once for the whole run, so that small steps add up. Because of the clamp, each
    coordinate stays between the lowest and the highest known value.

    >>> known_BD = torch.tensor([[0.0], [2.0], [4.0]])
    >>> late = Knowledge(20, 6, known_BD, round=99, seed=1)
    >>> SlowPoison(strength=0.5).apply(torch.zeros(1, 1), late)
    tensor([[3.]])
    """

    paper = "Rampart: an adaptive variant of LIE"
    strength: float = Field(default=1.0, gt=0)
    """Largest drift, in standard deviations."""
    pace: float = Field(default=0.1, gt=0)
    """Growth of the drift per round, in standard deviations."""

    def craft(self, own_FD: Tensor, knowledge: Knowledge) -> Tensor:
        known_BD = self.population(own_FD, knowledge)
        mean_D, std_D = moments(known_BD)
        draws = generator(knowledge.seed, "attack", self.name)
        signs_D = 2.0 * torch.randint(2, (len(mean_D),), generator=draws).to(mean_D) - 1
        rounds = knowledge.round - self.from_round + 1
        drift_D = min(self.strength, self.pace * rounds) * signs_D * std_D
        lowest_D, highest_D = known_BD.aminmax(dim=0)
        return everyone((mean_D + drift_D).clamp(lowest_D.double(), highest_D.double()), own_FD)
