"""FedPer: all clients share one body; each client has its own head, which it never uploads."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

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


@personalizers.register("fedper")
class FedPer(Personalizer):
    """Trains the received body together with the client's own head.

    Training starts from the received body φ and the client's own head h. Each mini-batch takes the
    step (φ, h) <- (φ, h) - η ∇L(φ, h), where L is the mean loss, and η is the learning rate.

    The client's own model consists of the client's own head and of the body from the client's most
    recent training. The upload changes only the body, because the upload is 0 in the head's
    coordinates. Detectors and rules therefore judge only bodies. Only an attacker's upload can be
    non-zero in the head's coordinates. An attacker's values in the head's coordinates change only
    the head that clients receive. Honest clients never use the received head. If a term of the
    objective compares the trained model with the received model, it compares only the bodies. The
    accuracy of the received model and the claimed `loss_gap` are measured with the received head.
    Neither number is meaningful, because clients do not use this head.
    """

    paper = "Arivazhagan et al., Federated learning with personalization layers, 2019"
    whole: ClassVar[bool] = False
    uploads_all: ClassVar[bool] = False
    head: str | None = None
    """Name of the layer that stays local; the last linear layer by default."""

    def check(self, module: nn.Module, spec: ModelSpec) -> None:
        check_body(module, spec, self.head)

    def init(self, initial_KD: Tensor) -> dict[str, Tensor]:
        return {"model": initial_KD.clone()}

    def step(self, local: StepState, received_KD: Tensor, batch: Batch, task: Task) -> StepState:
        head_D = task.head(self.head)
        joined_KD = torch.where(head_D, local.personal["model"], local.model_KD)
        reference_KD = torch.where(head_D, joined_KD, received_KD)
        (gradient_KD,) = task.with_reference(reference_KD).gradients(batch, joined_KD)
        after = task.descend(replace(local, model_KD=joined_KD), gradient_KD)
        body_KD = torch.where(head_D, received_KD, after.model_KD)
        return replace(after, model_KD=body_KD).with_personal(model=after.model_KD)

    def personalized(self, model_KD: Tensor, personal: Mapping[str, Tensor]) -> Tensor:
        return personal["model"]
