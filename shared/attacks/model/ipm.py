"""Inner-product manipulation."""

from pydantic import Field
from torch import Tensor

from rampart_fl.shared.attacks.base import Knowledge
from rampart_fl.shared.attacks.collusion import CollusionAttack, everyone, honest, mean_of
from rampart_fl.shared.attacks.model import attacks


@attacks.register("ipm")
class IPM(CollusionAttack):
    """Uploads a negative multiple of the honest mean.

    The upload is u = -epsilon x̄, where x̄ is the mean of the known honest updates.

    The attack aims at an aggregate whose inner product with the honest mean x̄ is negative. If m of
    n participants attack, the plain mean of all uploads is (n - m (1 + epsilon)) / n times the
    honest mean.

    >>> import torch
    >>> knowledge = Knowledge(5, 1, torch.tensor([[1.0, 0.0], [3.0, 2.0]]))
    >>> IPM(epsilon=0.5).apply(torch.zeros(1, 2), knowledge)
    tensor([[-1.0000, -0.5000]])
    """

    paper = "Xie et al., Fall of empires, 2019; FedCAP, equation 11"
    epsilon: float | None = Field(default=None, gt=0)
    """The factor epsilon; by default, the number of participants of the round."""

    def craft(self, own_FD: Tensor, knowledge: Knowledge) -> Tensor:
        epsilon = knowledge.participants if self.epsilon is None else self.epsilon
        return everyone(-epsilon * mean_of(honest(knowledge)), own_FD)
