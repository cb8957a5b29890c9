"""Model replacement: an update so large that it dominates the mean."""

from pydantic import Field
from torch import Tensor

from rampart_fl.shared.attacks.base import Knowledge, ModelAttack
from rampart_fl.shared.attacks.model import attacks


@attacks.register("model_replacement")
class ModelReplacement(ModelAttack):
    """Scales the update, so that it dominates a plain mean.

    The upload is u times `scale`. If `scale` is n, a plain mean over n clients contains the whole
    update u, instead of u / n.

    >>> import torch
    >>> ModelReplacement().apply(torch.tensor([[1.0, -2.0]]), Knowledge(20, 1))
    tensor([[ 20., -40.]])
    """

    paper = "Bagdasaryan et al., How to backdoor federated learning, 2020; FedCAP, section VI-A3"
    scale: float | None = Field(default=None, gt=0)
    """Factor that multiplies the update; by default, the number of participants of the round."""

    def craft(self, own_FD: Tensor, knowledge: Knowledge) -> Tensor:
        return own_FD * (knowledge.participants if self.scale is None else self.scale)
