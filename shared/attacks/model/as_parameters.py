"""Uploads an update as if it were a model."""

from pydantic import Field
from torch import Tensor

from rampart_fl.shared.attacks.base import Knowledge, ModelAttack
from rampart_fl.shared.attacks.model import attacks
from rampart_fl.shared.attacks.model.random_noise import start_models
from rampart_fl.shared.attacks.wrapping import Wrapper


@attacks.register("as_parameters")
class AsParameters(Wrapper):
    """Uploads the update of the inner attack as if it were a model.

    The upload is u = v - w for the crafted update v and the model w that the attacker trained from.

    The uploaded model w + u therefore equals the update v, and the values of v are near zero. The
    code behind the SDEA paper's tables uploads the updates of LIE, Min-Max and Min-Sum as if they
    were models. All three attacks therefore upload a model near zero. As a result, the paper's
    columns for these attacks and for noise are nearly equal.

    >>> import torch
    >>> knowledge = Knowledge(4, 1, torch.tensor([[1.0], [3.0]]), reference_D=torch.tensor([5.0]))
    >>> AsParameters(attack={"name": "lie", "z": 0.0}).apply(torch.ones(1, 1), knowledge)
    tensor([[-3.]])
    """

    paper = "SDEA's code"
    attack: ModelAttack = Field(default="lie", validate_default=True)
    """The inner attack: a name, or a TOML table with its name and parameters."""

    def craft(self, own_FD: Tensor, knowledge: Knowledge) -> Tensor:
        crafted_FD = super().craft(own_FD, knowledge)
        return (crafted_FD.double() - start_models(own_FD, knowledge, self.name)).to(own_FD)
