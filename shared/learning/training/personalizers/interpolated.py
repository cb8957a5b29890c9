"""Fine-tuned personalization: each step follows a mix of the client's gradient and an aggregate.

Legend: K clients, D parameters.
"""

from collections.abc import Mapping
from math import nan
from typing import Annotated, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.training.personalizers import (
    Batch,
    Personalizer,
    StepState,
    Task,
    personalizers,
)
from rampart_fl.shared.modelspec import ModelSpec


@personalizers.register("interpolated")
class Interpolated(Personalizer):
    """Takes steps along a mix of the client's own gradient and a robust aggregate.

    The model θ_i of client i takes the step θ_i <- θ_i - η [(1-λ) ∇L_i(θ_i) + λ R_i]. Here, L_i is
    the client's loss, R_i is the aggregate, and η is the learning rate. With λ = 0, a client trains
    locally; with λ = 1, it follows the aggregate alone.

    The mode `exact` is the paper's algorithm: R_i = F(g_1(θ_i), ..., g_n(θ_i)), where F is the
    experiment's pipeline, and g_j(θ_i) is the gradient of client j at the model θ_i. Every client
    computes its gradient at every client's model. A round with n clients therefore requires n²
    gradients. Every client would have to see every model, so the mode `exact` is available only in
    simulation (`rampart_fl.shared.simulation.interpolation`).

    To save gradients, the mode `shared` deviates from the paper: a round needs only as many
    gradients as with other personalizers. Each client j trains from its own θ_j and uploads the
    change u_j that training made. The step of the global model is
    R = w^{t+1} - w^t = F(u_1, ..., u_n). Clients receive R with the next round's model and then
    compute θ_i <- θ_i + (1-λ) u_i + λ R.

    If a round has one step, the modes `exact` and `shared` agree at λ = 0 and at λ = 1. The modes
    differ if 0 < λ < 1. In the mode `exact`, R_i consists of gradients at θ_i, so R_i can keep θ_i
    away from the client's own optimum. In the mode `shared`, the other clients compute their
    changes at their own models, not at θ_i. Therefore, R cannot keep θ_i away from this optimum. If
    F is a mean, θ_i keeps moving towards the client's own optimum in the mode `shared`. The weight
    λ then determines only how slowly θ_i approaches this optimum. The result therefore depends on
    the number of rounds.
    """

    paper = "fine-tuned personalization, algorithm 1"
    whole: ClassVar[bool] = False
    lambda_: Annotated[float, Field(ge=0, le=1)] | Literal["formula"] = Field(
        default=0.5, alias="lambda"
    )
    """Weight λ of the aggregate; with `formula`, λ is computed as in the paper (mode `exact`
    only)."""
    mode: Literal["shared", "exact"] = "shared"
    """In the mode `shared`, each client computes gradients only at its own model; in the mode
    `exact`, each client computes gradients at all clients' models."""
    pdim: int | None = Field(default=None, ge=1)
    """The model's pseudo-dimension, which `formula` needs; the default is the number of
    parameters."""

    @model_validator(mode="after")
    def _formula_is_exact(self) -> Self:
        if self.lambda_ == "formula" and self.mode == "shared":
            raise ValueError(
                'lambda = "formula" compares clients\' losses, so it needs mode = "exact"'
            )
        return self

    @property
    def simulated_only(self) -> bool:
        return self.mode == "exact"

    def check(self, module: nn.Module, spec: ModelSpec) -> None:
        if spec.statistics:
            raise ConfigurationError(
                "the personalizer interpolated adds differences to models, so running variances "
                "can become negative; "
                "use normalization without running statistics, such as GroupNorm"
            )

    def init(self, initial_KD: Tensor) -> dict[str, Tensor]:
        if self.mode == "exact":
            share = nan if isinstance(self.lambda_, str) else self.lambda_
            shares_K = torch.full((len(initial_KD),), share, dtype=initial_KD.dtype)
            return {"model": initial_KD.clone(), "lambda": shares_K.to(initial_KD.device)}
        return {name: initial_KD.clone() for name in ("model", "trained", "seen")}

    def begin(self, received_KD: Tensor, personal: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        model_KD = self.personalized(received_KD, personal)
        return {"model": model_KD, "trained": model_KD, "seen": received_KD}

    def step(self, local: StepState, received_KD: Tensor, batch: Batch, task: Task) -> StepState:
        before_KD = local.personal["trained"]
        (gradient_KD,) = task.gradients(batch, before_KD)
        after = task.descend(StepState(before_KD, local.personal, local.velocity), gradient_KD)
        upload_KD = local.model_KD + (after.model_KD - before_KD)
        personal = {**local.personal, "trained": after.model_KD}
        return StepState(upload_KD, personal, after.velocity)

    def personalized(self, model_KD: Tensor, personal: Mapping[str, Tensor]) -> Tensor:
        """Returns the clients' personal models θ.

        Between rounds, `model_KD` is the new global model w. During a round, `model_KD` is the
        model that the client trains for its upload, and the method returns the trained θ.
        """
        if self.mode == "exact":
            return personal["model"]
        assert not isinstance(self.lambda_, str)
        own_KD = (1 - self.lambda_) * personal["trained"] + self.lambda_ * personal["model"]
        return own_KD + self.lambda_ * (model_KD - personal["seen"])
