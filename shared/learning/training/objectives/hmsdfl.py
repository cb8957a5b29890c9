"""HMSDFL: trains a model whose logits change little when its parameters change."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from pydantic import Field, model_validator
from torch import Tensor

from rampart_fl.shared.learning.network.jacobian import (
    measured_norm,
    squared_norm,
    stacked_directions,
)
from rampart_fl.shared.learning.network.stacked import Stacked
from rampart_fl.shared.learning.training import machine
from rampart_fl.shared.learning.training.cohort import StepRandomness
from rampart_fl.shared.learning.training.objectives import Objective, Point, objectives


@objectives.register("hmsdfl")
class HMSDFL(Objective):
    """Penalizes the Jacobian of the logits, estimated by random projections.

    The term is λ J_F, where J_F estimates the squared norm of the Jacobian from M random
    projections m of the logits z: J_F = C/(M |B|) Σ_m |∂_θ Σ_a q_ma·z_a|².

    Here, θ are the parameters, z_a are the logits of sample a of the batch B, and C is the number
    of classes. For each sample a and projection m, the direction q_ma is uniform on the unit sphere
    of R^C. J_F is therefore an unbiased estimate of the mean of |∂z_a/∂θ|_F² over the batch. A step
    takes one additional forward pass, plus two backward passes per projection.

    Instead of `n_projections`, the experiment may set a tier. The tier "high" uses one projection
    per class. The tier "low" uses one projection for every two classes. The tier "minimum" uses one
    projection. With the tier "auto", the number of projections depends on each client's machine.
    The resources of a machine are the number of its usable cores or its memory divided by 2 GiB,
    whichever is smaller. A machine with a GPU has infinite resources. With the tier "auto", a
    machine with at least `high_resources` gets the high tier, and a machine with at most
    `low_resources` gets the minimum tier. Between `low_resources` and `high_resources`, the number
    of projections is interpolated. A machine with resources below `minimum_resources` trains
    without the term.

    >>> [HMSDFL(tier=tier).projections(classes=10) for tier in ("high", "low", "minimum")]
    [10, 5, 1]
    """

    paper = "MSDFL, section VI, equations 15 to 19, algorithm 2 (HMSDFL)"
    lambda_: float = Field(default=1e-4, ge=0, alias="lambda")
    """Weight λ of the norm; with λ = 0, the norm is measured but does not affect training."""
    n_projections: int = Field(default=1, ge=1)
    """Number of projections M in a step, if no tier is given."""
    tier: Literal["high", "low", "minimum", "auto"] | None = None
    """A tier replaces `n_projections`; the tier "auto" fits the number of projections to the
    machine."""
    high_resources: float = Field(default=8.0, gt=0)
    """With "auto", a machine with at least this amount of resources gets the high tier."""
    low_resources: float = Field(default=2.0, gt=0)
    """With "auto", a machine with resources between `minimum_resources` and this amount gets the
    minimum tier."""
    minimum_resources: float = Field(default=1.0, ge=0)
    """With "auto", a machine with less than this amount of resources trains without the term."""

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
        """The number of projections M in a step.

        Args:
            classes: number of classes of the task.
            resources: the machine's resources; if None, the resources of the current machine.

        >>> [HMSDFL(tier="auto").projections(10, cores) for cores in (0.5, 1, 2, 5, 8)]
        [0, 1, 1, 5, 10]
        """
        if self.tier is None:
            return self.n_projections
        fixed = {"high": classes, "low": max(1, classes // 2), "minimum": 1}
        if self.tier != "auto":
            return fixed[self.tier]
        available = machine.probe() if resources is None else resources
        if available < self.minimum_resources:
            return 0
        if available >= self.high_resources:
            return classes
        if available <= self.low_resources:
            return 1
        share = (available - self.low_resources) / (self.high_resources - self.low_resources)
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
        draws: StepRandomness,
    ) -> dict[str, Tensor]:
        generators = draws.generators(f"{self.name} measured")
        return {"jacobian_norm": measured_norm(network, models_KD, x_KN, sizes, generators)}
