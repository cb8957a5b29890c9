"""APFL: an adaptive mixture of a local and the global model."""

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor

from rampart_fl.shared.learning.training.personalizers import (
    Batch,
    Personalizer,
    StepState,
    Task,
    personalizers,
)


@personalizers.register("apfl")
class APFL(Personalizer):
    """Trains a local model, a global model, and their mixture.

    The client's own model mixes the local model v and the global model w: α v + (1 - α) w. Both v
    and α are trained on the loss of this mixture, whereas w is trained as in plain averaging.

    Let L be the mean loss on a mini-batch, and η the learning rate. Let g = ∇L(α v + (1 - α) w),
    with the values of v, w and α before the mini-batch. Each mini-batch causes three updates.
    First, the local model takes the step v <- v - η α g. Second, the mixture weight becomes
    α - η <v - w, g>, clamped to [0, 1], where v is the local model before its step. Third, the
    optimizer takes one step on w along -∇L(w). Steps on v use plain SGD, without momentum. If α
    stays 1, the client's own model is v, and v is trained without w. If α stays 0, the client's own
    model is w, so the method is plain averaging.
    """

    paper = "Deng, Kamani and Mahdavi, Adaptive personalized federated learning, 2020, algorithm 1"
    alpha: float = Field(default=0.5, ge=0, le=1)
    """Initial weight α of the local model."""
    adaptive: bool = True
    """Whether α is learned."""

    def init(self, initial_KD: Tensor) -> dict[str, Tensor]:
        alpha_K = initial_KD.new_full((len(initial_KD),), self.alpha)
        return {"model": initial_KD.clone(), "alpha": alpha_K}

    def step(self, local: StepState, received_KD: Tensor, batch: Batch, task: Task) -> StepState:
        own_KD, alpha_K = local.personal["model"], local.personal["alpha"]
        mixed_KD = self.personalized(local.model_KD, local.personal)
        gradient_KD, mixed_gradient_KD = task.gradients(batch, local.model_KD, personal=[mixed_KD])
        after_KD = own_KD - task.learning_rate * alpha_K[:, None] * mixed_gradient_KD
        ones_1D = torch.ones_like(own_KD[:1])
        trained_1D = task.parameters(ones_1D)
        if trained_1D is not ones_1D:
            # The local model's running statistics are those of the mixture, which sees the batches.
            seen_KD = mixed_KD - task.learning_rate * mixed_gradient_KD
            after_KD = torch.where(trained_1D.bool(), after_KD, seen_KD)
        if self.adaptive:
            apart_KD = task.parameters(own_KD - local.model_KD)
            slope_K = (apart_KD * mixed_gradient_KD).sum(1)
            alpha_K = (alpha_K - task.learning_rate * slope_K).clamp(0, 1)
        return task.descend(local, gradient_KD).with_personal(model=after_KD, alpha=alpha_K)

    def personalized(self, model_KD: Tensor, personal: Mapping[str, Tensor]) -> Tensor:
        return torch.lerp(model_KD, personal["model"], personal["alpha"][:, None])
