"""FedBABU: the federation trains the body for a fixed head; clients fine-tune their own models."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from rampart_fl.shared.learning.network.heads import check_body
from rampart_fl.shared.learning.training.personalizers import (
    Batch,
    Personalizer,
    StepState,
    Task,
    personalizers,
)
from rampart_fl.shared.modelspec import ModelSpec


@personalizers.register("fedbabu")
class FedBABU(Personalizer):
    """Uploads a body that is trained with a fixed head, and fine-tunes a personal model.

    For the upload, the client trains only the body φ, by steps φ <- φ - η ∇_φ L(φ, h₀). For itself,
    the client trains its own model v, by steps v <- v - η ∇L(v).

    Here, h₀ is the head of the first global model, L is the mean loss on the mini-batch, and η is
    the learning rate. In every round, v starts as a copy of the received model. The client trains v
    by plain SGD, on the same mini-batches as φ. Because v is trained in every round, v is available
    whenever the federation ends. An honest client's upload is 0 in the head's coordinates. These
    coordinates therefore give detectors and rules no information about the client. An attacker's
    upload can differ from 0 in the head's coordinates. If the rule does not prevent this, an
    attacker can thus change the head with which all clients train.
    """

    paper = "Oh, Kim and Yun, FedBABU: toward enhanced representation for FL, 2022"
    whole: ClassVar[bool] = False
    uploads_all: ClassVar[bool] = False
    head: str | None = None
    """Name of the layer that the federation does not train; the last linear layer by default."""
    tuned: Literal["all", "head", "body"] = "all"
    """The part of the model that is changed by fine-tuning."""

    def check(self, module: nn.Module, spec: ModelSpec) -> None:
        check_body(module, spec, self.head)

    def init(self, initial_KD: Tensor) -> dict[str, Tensor]:
        return {"model": initial_KD.clone()}

    def begin(self, received_KD: Tensor, personal: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {"model": received_KD.clone()}

    def step(self, local: StepState, received_KD: Tensor, batch: Batch, task: Task) -> StepState:
        head_D, own_KD = task.head(self.head), local.personal["model"]
        gradient_KD, own_gradient_KD = task.gradients(batch, local.model_KD, personal=[own_KD])
        if self.tuned != "all":
            # The running statistics follow the batches, whatever is fine-tuned.
            trained_D = task.parameters(torch.ones_like(own_KD[:1]))[0].bool()
            frozen_D = trained_D & (head_D == (self.tuned == "body"))
            own_gradient_KD = own_gradient_KD.masked_fill(frozen_D, 0)
        own_KD = torch.sub(own_KD, own_gradient_KD, alpha=task.learning_rate)
        after = task.descend(local, gradient_KD)
        body_KD = torch.where(head_D, received_KD, after.model_KD)
        return replace(after, model_KD=body_KD).with_personal(model=own_KD)

    def personalized(self, model_KD: Tensor, personal: Mapping[str, Tensor]) -> Tensor:
        return personal["model"]
