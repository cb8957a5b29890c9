"""No personalization: plain local training."""

from torch import Tensor

from rampart_fl.shared.learning.training.personalizers import (
    Batch,
    Personalizer,
    StepState,
    Task,
    personalizers,
)


@personalizers.register("none")
class NoPersonalization(Personalizer):
    """Trains only the uploaded model.

    Each mini-batch takes the step w <- w - η ∇L(w), with the experiment's momentum and weight
    decay.
    """

    paper = "McMahan et al., Communication-efficient learning (FedAvg), 2017"

    def step(self, local: StepState, received_KD: Tensor, batch: Batch, task: Task) -> StepState:
        (gradient_KD,) = task.gradients(batch, local.model_KD)
        return task.descend(local, gradient_KD)
