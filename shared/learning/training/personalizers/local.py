"""Local training: each client trains on its own data, without the federation."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from rampart_fl.shared.learning.training.personalizers import (
    Batch,
    Personalizer,
    StepState,
    Task,
    personalizers,
)


@personalizers.register("local")
class LocalOnly(Personalizer):
    """Trains on the client's own data only.

    The client's own model v starts at the first global model. Each mini-batch takes the step
    v <- v - η ∇L(v), where L is the mean loss, and η is the learning rate. The upload is zero.

    Local training is the baseline without communication: the server can neither harm nor help the
    client.
    """

    paper = "FedCAP, section VI-A2 (Local)"
    whole: ClassVar[bool] = False
    uploads_all: ClassVar[bool] = False

    def init(self, initial_KD: Tensor) -> dict[str, Tensor]:
        return {"model": initial_KD.clone()}

    def step(self, local: StepState, received_KD: Tensor, batch: Batch, task: Task) -> StepState:
        (gradient_KD,) = task.gradients(batch, personal=[local.personal["model"]])
        own = StepState(local.personal["model"], velocity=local.velocity)
        after = task.descend(own, gradient_KD)
        return StepState(local.model_KD, {"model": after.model_KD}, after.velocity)

    def personalized(self, model_KD: Tensor, personal: Mapping[str, Tensor]) -> Tensor:
        return personal["model"]
