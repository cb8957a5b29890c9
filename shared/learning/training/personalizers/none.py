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

    The model w starts as the received model. Each mini-batch takes the step w <- w - η ∇L(w), where
    L is the mean loss, and η is the learning rate. The step also uses the experiment's momentum and
    weight decay.
    """

    paper = "McMahan et al., Communication-efficient learning (FedAvg), 2017"

    def step(self, local: StepState, received_KD: Tensor, batch: Batch, task: Task) -> StepState:
        (gradient_KD,) = task.gradients(batch, local.model_KD)
        return task.descend(local, gradient_KD)
