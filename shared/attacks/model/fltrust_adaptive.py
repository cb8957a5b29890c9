"""An attack on FLTrust: all attackers upload the direction that harms the aggregate most.

Legend: B known honest updates, M attackers, D coordinates.
"""

import math

import torch
from torch import Tensor

from rampart_fl.shared.attacks.base import Knowledge
from rampart_fl.shared.attacks.collusion import CollusionAttack, everyone, honest, mean_of
from rampart_fl.shared.attacks.model import attacks
from rampart_fl.shared.robust import linalg
from rampart_fl.shared.robust.base import Rows

GRID = 4096
"""Number of angles in the first grid of the search for the best angle."""
NARROWINGS = 12
"""Number of further grids. Each grid covers the interval between the two neighbours of the best
angle so far."""


@attacks.register("fltrust_adaptive")
class FLTrustAdaptive(CollusionAttack):
    """Uploads the vector that moves FLTrust's aggregate most against the signs of the honest mean.

    The upload is |u0| e: it has the norm of the trusted update u0 and the direction of a unit
    vector e. With these uploads, FLTrust's aggregate is |u0| A(e), where
    A(e) = (Σ_i TS_i x̄_i + M c e) / (Σ_i TS_i + M c). The attack chooses the e that minimizes
    s·A(e), where s = sign(mean) is the honest direction.

    If the attack knows the server's own update, the trusted update u0 is this update. Otherwise, u0
    is the mean of the known honest updates x_i. Each x_i has the direction x̄_i = x_i / |x_i| and
    the trust score TS_i = max(0, cos(x_i, u0)). All M attackers upload the direction e; the cosine
    c = cos(e, u0) is positive. For a given angle to u0, the best e is in the plane of u0 and s. The
    attack therefore searches for a single number, the angle.

    >>> knowledge = Knowledge(4, 2, torch.tensor([[1.0, 0.5], [1.0, -0.5]]))
    >>> crafted_D = FLTrustAdaptive().apply(torch.zeros(1, 2), knowledge)[0]
    >>> bool(crafted_D[0] > 0), bool(crafted_D.norm() <= 1.0001)
    (True, True)
    """

    paper = "Cao et al., FLTrust, 2021, section on adaptive attacks"

    def craft(self, own_FD: Tensor, knowledge: Knowledge) -> Tensor:
        known_BD = honest(knowledge)
        mean_D = mean_of(known_BD)
        trusted_D = mean_D
        if knowledge.server_update_D is not None:
            trusted_D = knowledge.server_update_D.to(mean_D)
        norm = float(trusted_D.norm())
        if norm == 0:
            return everyone(trusted_D, own_FD)
        unit_D = trusted_D / norm
        wanted_D = mean_D.sign()
        along = float(wanted_D @ unit_D)
        across_D = wanted_D - along * unit_D
        across = float(across_D.norm())
        if across <= 1e-9 * float(wanted_D.norm()):
            return everyone(trusted_D, own_FD)

        rows = Rows.of(known_BD)
        trust_B = linalg.cosines_to(rows, unit_D).clamp(min=0)
        shares_B = (trust_B / linalg.norms(rows)).nan_to_num(0.0)
        pull = float(shares_B @ linalg.dots(rows, wanted_D))
        angle = best_angle(pull, float(trust_B.sum()), along, across, knowledge.attackers)
        crafted_D = math.cos(angle) * unit_D - math.sin(angle) * across_D / across
        return everyone(norm * crafted_D, own_FD)


def best_angle(pull: float, trust: float, along: float, across: float, attackers: int) -> float:
    """The angle to the trusted update u0 at which the attackers' uploads do the most harm.

    The angle θ with 0 ≤ θ < π/2 minimizes s·A(e) = (P + w (a cos θ - b sin θ)) / (T + w). The
    symbols s, A, e, TS_i and x̄_i are those of `FLTrustAdaptive`.

    Here, w = M cos θ is the trust in the M attackers. T (`trust`) is the sum of the honest clients'
    trust scores. P (`pull`) is s·Σ_i TS_i x̄_i, the contribution of the honest clients. The number
    a (`along`) is the component of s in the direction of u0. The number b (`across`) is the norm of
    the component of s that is perpendicular to u0.
    """

    def harm(angles: Tensor) -> Tensor:
        weight = attackers * angles.cos()
        toll: Tensor = pull + weight * (along * angles.cos() - across * angles.sin())
        return toll / (trust + weight)

    low, high = 0.0, math.pi / 2 * (1 - 1e-9)
    angles = torch.linspace(low, high, GRID, dtype=torch.float64)
    for _ in range(NARROWINGS):
        best = int(harm(angles).argmin())
        low = float(angles[max(best - 1, 0)])
        high = float(angles[min(best + 1, len(angles) - 1)])
        angles = torch.linspace(low, high, 64, dtype=torch.float64)
    return float(angles[int(harm(angles).argmin())])
