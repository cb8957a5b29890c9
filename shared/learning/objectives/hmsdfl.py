"""HMSDFL: a model whose logits move little with its parameters."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from pydantic import Field, model_validator
from torch import Tensor

from rampart_fl.shared.learning import machine
from rampart_fl.shared.learning.cohort import Draws
from rampart_fl.shared.learning.jacobian import measured_norm, squared_norm, stacked_directions
from rampart_fl.shared.learning.objectives import Objective, Point, objectives
from rampart_fl.shared.learning.stacked import Stacked


@objectives.register("hmsdfl")
class HMSDFL(Objective):
    """λ J_F with J_F = C/(M |B|) Σ_m |∂_θ Σ_a q_ma·z_a|², M random projections of the logits z.

    q_ma is uniform on the unit sphere of R^C, so J_F estimates the batch's mean of |∂z_a/∂θ|_F²
    without bias. A step takes one more forward pass, and two backward passes per projection.

    Instead of `n_projections` a tier may be named, or left to each client's machine ("auto"):
    high, with as many projections as classes; low, with half as many; minimum, with one. A machine
    below `minimum_resources` trains without the term. Resources are usable cores that have 2 GiB
    each, endless with a GPU; between `low_resources` and `high_resources` "auto" interpolates.

    >>> [HMSDFL(tier=tier).projections(classes=10) for tier in ("high", "low", "minimum")]
    [10, 5, 1]
    """

    paper = "MSDFL, section VI, equations 15 to 19, algorithm 2 (HMSDFL)"
    lambda_: float = Field(default=1e-4, ge=0, alias="lambda")
    """Weight λ of the norm; at 0 it is measured and changes nothing."""
    n_projections: int = Field(default=1, ge=1)
    """Projections M of a step, where no tier is given."""
    tier: Literal["high", "low", "minimum", "auto"] | None = None
    """How many projections the client's machine can afford."""
    high_resources: float = Field(default=8.0, gt=0)
    """From here on "auto" is the high tier."""
    low_resources: float = Field(default=2.0, gt=0)
    """Up to here "auto" is the minimum tier."""
    minimum_resources: float = Field(default=1.0, ge=0)
    """Below this "auto" trains without the term."""

    @model_validator(mode="after")
    def _ordered(self) -> "HMSDFL":
        bounds = ("minimum_resources", "low_resources", "high_resources")
        for lower, upper in pairwise(bounds):
            if getattr(self, lower) > getattr(self, upper):
                raise ValueError(
                    f"{lower} {getattr(self, lower):g} is above {upper} {getattr(self, upper):g}"
                )
        return self

    @property
    def weight(self) -> float:
        return self.lambda_ if self.tier != "auto" or self.projections(1) else 0.0

    def projections(self, classes: int, resources: float | None = None) -> int:
        """Projections M of a step.

        Args:
            classes: of the task.
            resources: of the machine; of this one when None.

        >>> [HMSDFL(tier="auto").projections(10, cores) for cores in (0.5, 1, 2, 5, 8)]
        [0, 1, 1, 5, 10]
        """
        if self.tier is None:
            return self.n_projections
        fixed = {"high": classes, "low": max(1, classes // 2), "minimum": 1}
        if self.tier != "auto":
            return fixed[self.tier]
        given = machine.probe() if resources is None else resources
        if given < self.minimum_resources:
            return 0
        if given >= self.high_resources:
            return classes
        if given <= self.low_resources:
            return 1
        share = (given - self.low_resources) / (self.high_resources - self.low_resources)
        return max(1, int(share * classes))

    def gradient(self, point: Point) -> Tensor:
        draws = point.draws.generators(self.name)

        def along(classes: int) -> list[Tensor]:
            shape = (point.batch.x_KB.shape[1], classes)
            count = self.projections(classes)
            return [stacked_directions(point.draws.sizes, *shape, draws) for _ in range(count)]

        _, gradient_KD = squared_norm(
            point.network, point.models_KD, point.batch.x_KB, point.draws.sizes, along
        )
        return self.lambda_ * gradient_KD

    def measure(
        self,
        network: Stacked,
        models_KD: Tensor,
        x_KN: Tensor,
        sizes: Sequence[int],
        draws: Draws,
    ) -> dict[str, Tensor]:
        generators = draws.generators(f"{self.name} measured")
        return {"jacobian_norm": measured_norm(network, models_KD, x_KN, sizes, generators)}
