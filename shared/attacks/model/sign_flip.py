"""Sign flipping."""

from torch import Tensor

from rampart_fl.shared.attacks.base import Knowledge, ModelAttack
from rampart_fl.shared.attacks.model import attacks


@attacks.register("sign_flip")
class SignFlip(ModelAttack):
    """u -> -u.

    >>> import torch
    >>> SignFlip().apply(torch.tensor([[1.0, -2.0]]), Knowledge(participants=4, attackers=1))
    tensor([[-1.,  2.]])
    """

    paper = "FedCAP, section VI-A3"

    def craft(self, own_FD: Tensor, knowledge: Knowledge) -> Tensor:
        return -own_FD
