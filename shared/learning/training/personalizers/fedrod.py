"""FedRoD: a generic model for balanced classes, and a second, personal head.

Legend: K clients, B samples in a batch, C classes, D parameters.
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from rampart_fl.shared.learning.network.heads import check_output
from rampart_fl.shared.learning.training.personalizers import (
    Batch,
    Personalizer,
    StepState,
    Task,
    personalizers,
)
from rampart_fl.shared.modelspec import ModelSpec


@personalizers.register("fedrod")
class FedRoD(Personalizer):
    """Trains a generic model with a class-balanced loss, and also trains a second, personal head.

    Two cross entropies (CE) are minimized. The loss CE(z_c + log n_c) trains the body and the
    generic head. The loss CE(sg(z) + h(sg(f))) trains a second head h.

    Here, z are the logits of the generic head, f are the features before the head, and sg stops the
    gradient. The client has n_c training samples of class c. If n_c is 0, the softmax of the first
    loss leaves out class c. The prediction is z + h(f). The client uploads the body and the generic
    head. The personal head h starts at 0, stays with its client, and takes plain SGD steps.

    Both heads are linear in the same features, so z + h is the output of a model whose head is the
    sum of both heads. The model with the summed head is the client's own model. The gradient of
    this model's loss with respect to the summed head equals the gradient of CE(sg(z) + h(sg(f)))
    with respect to h. A step therefore computes the gradient for the summed head, and applies this
    gradient to h. An attacker that flips labels computes n_c from the flipped labels.
    """

    paper = "Chen and Chao, On bridging generic and personalized federated learning, 2022"
    accounted: ClassVar[bool] = False
    """Differential privacy cannot account for FedRoD, because the loss of the generic model
    contains the client's exact class counts."""
    whole: ClassVar[bool] = False
    head: str | None = None
    """Name of the linear layer that gives the logits; the last linear layer by default."""

    def check(self, module: nn.Module, spec: ModelSpec) -> None:
        check_output(module, self.head)

    def init(self, initial_KD: Tensor) -> dict[str, Tensor]:
        return {"head": torch.zeros_like(initial_KD)}

    def step(self, local: StepState, received_KD: Tensor, batch: Batch, task: Task) -> StepState:
        outside_D = ~task.head(self.head)
        whole_KD = self.personalized(local.model_KD, local.personal)
        gradient_KD, whole_gradient_KD = task.balanced().gradients(
            batch, local.model_KD, personal=[whole_KD]
        )
        head_gradient_KD = whole_gradient_KD.masked_fill(outside_D, 0)
        head_KD = torch.sub(local.personal["head"], head_gradient_KD, alpha=task.learning_rate)
        return task.descend(local, gradient_KD).with_personal(head=head_KD)

    def personalized(self, model_KD: Tensor, personal: Mapping[str, Tensor]) -> Tensor:
        return model_KD + personal["head"]
