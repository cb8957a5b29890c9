"""A little is enough (LIE): a shift of the mean that stays within the spread of honest updates."""

from statistics import NormalDist

from torch import Tensor

from rampart_fl.shared.attacks.base import Knowledge
from rampart_fl.shared.attacks.collusion import MomentAttack, everyone, moments
from rampart_fl.shared.attacks.model import attacks


def largest_z(participants: int, attackers: int) -> float:
    """The largest z with which the attackers and their supporters are expected to be a majority.

    For n clients, m attackers and s = ⌊n/2⌋ + 1 - m supporters, the function computes
    z = Φ⁻¹((n - m - s) / (n - m)).

    Φ is the distribution function of the standard normal distribution. Supporters are honest
    clients on the attackers' side of the mean. Their updates are expected to be farther from the
    mean than the attackers' upload. The quotient (n - m - s) / (n - m) is clamped: it stays at
    least 1 / (2 (n - m)) away from 0 and from 1. Without clamping, z could be infinite. For
    example, the quotient reaches 1 if the attackers alone are a majority.

    >>> round(largest_z(20, 6), 6)
    0.366106
    """
    benign = max(participants - attackers, 1)
    supporters = participants // 2 + 1 - attackers
    edge = 1 / (2 * benign)
    share = (benign - supporters) / benign
    return NormalDist().inv_cdf(min(max(share, edge), 1 - edge))


@attacks.register("lie")
class LIE(MomentAttack):
    """Shifts the mean of the known updates by z standard deviations in each coordinate.

    The upload is u = mean - z std, with the mean and the standard deviation of each coordinate.

    >>> import torch
    >>> knowledge = Knowledge(20, 6, torch.tensor([[0.0], [2.0], [4.0]]))
    >>> LIE(z=0.5).apply(torch.zeros(1, 1), knowledge)
    tensor([[1.]])
    """

    paper = "Baruch et al., A little is enough, 2019; FedCAP, section VI-A3"
    z: float | None = None
    """Number of standard deviations. By default, z is the largest number that meets this condition:
    a majority of all clients is expected to be on the attackers' side of the mean, at least z
    standard deviations from the mean. The attackers count towards this majority."""

    def craft(self, own_FD: Tensor, knowledge: Knowledge) -> Tensor:
        z = largest_z(knowledge.participants, knowledge.attackers) if self.z is None else self.z
        mean_D, std_D = moments(self.population(own_FD, knowledge))
        return everyone(mean_D - z * std_D, own_FD)
