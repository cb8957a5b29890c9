"""Attacks that shift the mean of known updates as far as a limit on distances allows.

The upload is u = μ + γ p, with the mean μ of the known updates, a direction p, and the largest
feasible γ. A γ is feasible if the cost of u does not exceed a limit. The cost depends on the
distances between u and the known updates. The limit depends only on the known updates.

Legend: B known updates, D coordinates, C coordinates of a chunk.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from rampart_fl.shared.attacks.base import Knowledge
from rampart_fl.shared.attacks.collusion import MomentAttack, everyone, moments
from rampart_fl.shared.robust import linalg
from rampart_fl.shared.robust.base import Rows

ROUGH = 1e-4
"""Expected relative accuracy of costs that are computed from a Gram matrix. Costs within this
relative distance of the limit are computed again from the updates."""


@dataclass(frozen=True)
class Line:
    """Numbers that determine the distances from the points μ + γ p to the known updates x_i.

    Args:
        squares_B: squared distances |μ - x_i|² from μ to the known updates.
        slopes_B: inner products p·(μ - x_i).
        curvature: squared norm |p|² of the direction; positive.
    """

    squares_B: Tensor
    slopes_B: Tensor
    curvature: float

    def distances(self, gamma: float) -> Tensor:
        """The distances |μ + γ p - x_i| (B,) from the point at γ to the known updates."""
        squares_B = self.squares_B + 2 * gamma * self.slopes_B + gamma**2 * self.curvature
        return squares_B.clamp(min=0).sqrt()


class LineSearchAttack(MomentAttack):
    """Moves the mean of the known updates as far as a limit on the cost of the upload allows.

    The upload is u = μ + γ p, with the mean μ of the known updates and a direction p. The factor γ
    is the largest number for which the cost of u does not exceed the limit, even after u is
    rounded.

    `cost` maps the distances between a point and the known updates x_i to one number. The limit is
    the largest cost of a known update (`bound="max"`) or the smallest cost of a known update
    (`bound="min"`). With `bound="max"`, γ = 0 is always feasible in exact arithmetic. Rounding can
    lift the cost of μ above the limit. In this case, u is still the rounded μ. With `bound="min"`,
    it is possible that no γ ≥ 0 is feasible. In this case, u is the known update with the smallest
    cost.
    """

    perturbation: Literal["std", "unit", "sign"] = "std"
    """The direction p: the negative standard deviation (`std`), the negative mean divided by its
    norm (`unit`), or the negative signs of the mean (`sign`)."""
    bound: Literal["max", "min"] = "max"
    """The limit: the largest or the smallest cost among the known updates."""

    @abstractmethod
    def cost(self, distances_BX: Tensor) -> Tensor:
        """The cost (X,) of each of X points, from their distances (B, X) to the known updates."""

    @abstractmethod
    def largest(self, line: Line, limit: float) -> float | None:
        """The largest feasible γ ≥ 0 in exact arithmetic; None if no γ ≥ 0 is feasible."""

    def craft(self, own_FD: Tensor, knowledge: Knowledge) -> Tensor:
        rows = Rows.of(self.population(own_FD, knowledge))
        mean_D, std_D = moments(rows.block_ND)
        limiting, limit = self._limit(rows)
        p_D = self._direction(mean_D, std_D)
        gamma = self._gamma(rows, mean_D, p_D, limit)
        if gamma is not None:
            # Rounding may move u past the limit, so reduce γ until the cost of u does not exceed
            # the limit.
            for step in self._steps(own_FD.dtype):
                u_D = (mean_D + gamma * (1 - step) * p_D).to(own_FD.dtype)
                if self._cost_at(rows, u_D) <= limit:
                    return everyone(u_D, own_FD)
        if self.bound == "max" and limit > 0:
            return everyone(mean_D.to(own_FD.dtype), own_FD)
        return everyone(rows.row(limiting), own_FD)

    def _limit(self, rows: Rows) -> tuple[int, float]:
        """The position of the known update that sets the limit, and the limit in float64."""
        sign = 1 if self.bound == "max" else -1
        rough_B = sign * self.cost(linalg.squared_distances(rows).sqrt())
        close_B = rough_B >= rough_B.max() - ROUGH * rough_B.max().abs()
        exact = [
            (sign * self._cost_at(rows, rows.row(i)), -i)
            for i in close_B.nonzero().flatten().tolist()
        ]
        best, position = max(exact)
        return -position, sign * best

    def _cost_at(self, rows: Rows, point_D: Tensor) -> float:
        return float(self.cost(linalg.norms(rows, point_D.double())[:, None]))

    def _direction(self, mean_D: Tensor, std_D: Tensor) -> Tensor:
        if self.perturbation == "std":
            return -std_D
        if self.perturbation == "sign":
            return -mean_D.sign()
        unit_D: Tensor = (mean_D / mean_D.norm()).nan_to_num(0.0)
        return -unit_D

    def _gamma(self, rows: Rows, mean_D: Tensor, p_D: Tensor, limit: float) -> float | None:
        curvature = float(p_D.square().sum())
        if curvature == 0:
            return 0.0
        slopes_B = float(p_D @ mean_D) - linalg.dots(rows, p_D)
        squares_B = linalg.norms(rows, mean_D).square()
        return self.largest(Line(squares_B, slopes_B, curvature), limit)

    @staticmethod
    def _steps(dtype: torch.dtype) -> list[float]:
        least = max(torch.finfo(dtype).eps / 16, 1e-13)
        steps = [least]
        while steps[-1] < 1:
            steps.append(min(1.0, 4 * steps[-1]))
        return steps
