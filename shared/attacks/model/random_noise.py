"""Random noise; papers use this name for three different attacks.

Legend: F attackers, D coordinates.
"""

from typing import Literal

import torch
from torch import Tensor

from rampart_fl.shared.attacks.base import Knowledge, ModelAttack
from rampart_fl.shared.attacks.model import attacks
from rampart_fl.shared.attacks.noise import normal, per_attacker
from rampart_fl.shared.errors import ConfigurationError


@attacks.register("random_noise")
class RandomNoise(ModelAttack):
    """Noise as large as the update, or the parameters of a randomly initialized model.

    `update`: each coordinate of the upload is drawn from a normal distribution with mean 0. The
    standard deviation of this distribution is the population standard deviation of the honest
    update's coordinates. `parameters`: the uploaded model is randomly initialized. `interpolation`:
    the uploaded model is the midpoint between a randomly initialized model and the honestly trained
    model.

    >>> noisy = RandomNoise().apply(torch.tensor([[1.0, -1.0]]), Knowledge(4, 1))
    >>> noisy.shape
    torch.Size([1, 2])
    """

    paper = "FedCAP's code (update); SDEA, appendix D.2 (parameters) and its code (interpolation)"
    reading: Literal["update", "parameters", "interpolation"] = "update"
    """The kind of noise; `parameters` and `interpolation` need a function that draws randomly
    initialized models (`Knowledge.initial`)."""

    def craft(self, own_FD: Tensor, knowledge: Knowledge) -> Tensor:
        draws = per_attacker(knowledge, self.name, len(own_FD))
        if self.reading == "update":
            noise_FD = torch.stack([normal(own_FD.shape[1], draw) for draw in draws])
            std_F1 = own_FD.double().std(dim=1, correction=0, keepdim=True)
            return std_F1 * noise_FD.to(own_FD.device)
        if knowledge.initial is None:
            raise ConfigurationError(
                f"random_noise with reading={self.reading!r} needs `Knowledge.initial`, which "
                "draws a randomly initialized model"
            )
        start_FD = start_models(own_FD, knowledge, self.name)
        fresh_FD = torch.stack([knowledge.initial(draw) for draw in draws]).to(start_FD)
        if self.reading == "parameters":
            return fresh_FD - start_FD
        return (fresh_FD + start_FD + own_FD.double()) / 2 - start_FD


def start_models(own_FD: Tensor, knowledge: Knowledge, attack: str) -> Tensor:
    """The models (F, D) in float64 from which the attackers started their training."""
    start = knowledge.reference_D if knowledge.sent_FD is None else knowledge.sent_FD
    if start is None:
        raise ConfigurationError(f"{attack} needs the model from which the attackers started")
    return start.to(own_FD.device, torch.float64).expand_as(own_FD)
