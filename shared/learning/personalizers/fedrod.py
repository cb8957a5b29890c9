"""FedRoD: a generic model trained as if classes were balanced, and a personal head beside its own.

Legend: K clients, B samples of a batch, C classes, D parameters.
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from rampart_fl.shared.learning.heads import check_output
from rampart_fl.shared.learning.personalizers import Batch, Local, Personalizer, Task, personalizers
from rampart_fl.shared.modelspec import ModelSpec


@personalizers.register("fedrod")
class FedRoD(Personalizer):
    """Generic: CE(z_c + log n_c) moves body and generic head; personal: CE(sg(z) + h(sg(f))).

    z are the generic logits, f the features before the head, n_c the client's training samples of
    class c (classes that it does not have are left out), sg stops the gradient. The prediction is
    z + h. Body and generic head are uploaded; the personal head h starts at 0, stays with its
    client, and takes plain SGD steps.

    Both heads are linear in the same features, so that z + h is the model whose head is the sum of
    the two: that model is the client's own, and its gradient in the head's coordinates is that of
    h. An attacker that flips labels counts the flipped ones.
    """

    paper = "Chen and Chao, On bridging generic and personalized federated learning, 2022"
    accounted: ClassVar[bool] = False
    """The generic model is trained with the client's exact class counts."""
    whole: ClassVar[bool] = False
    head: str | None = None
    """The linear layer that gives the logits, by name; the last one by default."""

    def check(self, module: nn.Module, spec: ModelSpec) -> None:
        check_output(module, self.head)

    def init(self, initial_KD: Tensor) -> dict[str, Tensor]:
        return {"head": torch.zeros_like(initial_KD)}

    def step(self, local: Local, received_KD: Tensor, batch: Batch, task: Task) -> Local:
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
