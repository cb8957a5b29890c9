"""Fine-tuning: the client's own model is the received model after local training."""

from collections.abc import Mapping

from torch import Tensor

from rampart_fl.shared.learning.training.personalizers import (
    Batch,
    Personalizer,
    StepState,
    Task,
    personalizers,
)


@personalizers.register("fine_tune")
class FineTune(Personalizer):
    """Trains as in FedAvg, and keeps the trained model as the personal model."""

    paper = "Wang et al., Federated evaluation of on-device personalization, 2019 (FedAvg-FT)"

    def init(self, initial_KD: Tensor) -> dict[str, Tensor]:
        return {"model": initial_KD.clone()}

    def step(self, local: StepState, received_KD: Tensor, batch: Batch, task: Task) -> StepState:
        (gradient_KD,) = task.gradients(batch, local.model_KD)
        after = task.descend(local, gradient_KD)
        return after.with_personal(model=after.model_KD)

    def personalized(self, model_KD: Tensor, personal: Mapping[str, Tensor]) -> Tensor:
        return personal["model"]
