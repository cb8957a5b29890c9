"""FedCAP's personalized training: a second model is pulled towards the customized model."""

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


@personalizers.register("fedcap")
class FedCAP(Personalizer):
    """Trains a personal model that is pulled towards the received model.

    For each mini-batch, the personal model v takes the step v <- v - η (∇L(v) + λ (v - ŵ)), where L
    is the mean loss on the mini-batch, and η is the learning rate. Then the optimizer takes one
    step on w, the model that is trained for upload.

    ŵ is the model as received, which stays fixed during the round. The personal model v starts at
    the first global model, stays with the client, and takes plain SGD steps.
    """

    paper = "FedCAP, section V-B, equation 7"
    lambda_: float = Field(default=0.1, ge=0, alias="lambda")
    """Strength λ of the pull towards the received model."""

    def init(self, initial_KD: Tensor) -> dict[str, Tensor]:
        return {"model": initial_KD.clone()}

    def step(self, local: StepState, received_KD: Tensor, batch: Batch, task: Task) -> StepState:
        own_KD = local.personal["model"]
        gradient_KD, own_gradient_KD = task.gradients(batch, local.model_KD, personal=[own_KD])
        apart_KD = task.parameters(own_KD - received_KD)
        own_gradient_KD = torch.add(own_gradient_KD, apart_KD, alpha=self.lambda_)
        own_KD = torch.sub(own_KD, own_gradient_KD, alpha=task.learning_rate)
        return task.descend(local, gradient_KD).with_personal(model=own_KD)

    def personalized(self, model_KD: Tensor, personal: Mapping[str, Tensor]) -> Tensor:
        return personal["model"]
