"""The Jacobian-aware adaptive attack: a model close to LIE's target, but with a smaller Jacobian.

Legend: F attackers, D coordinates.
"""

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from rampart_fl.shared.attacks.base import Knowledge
from rampart_fl.shared.attacks.model import attacks
from rampart_fl.shared.attacks.model.lie import LIE
from rampart_fl.shared.attacks.model.random_noise import start_models
from rampart_fl.shared.attacks.noise import per_attacker
from rampart_fl.shared.errors import ConfigurationError


@attacks.register("jaa")
class JAA(LIE):
    """Uploads a model that is close to LIE's target but has a smaller Jacobian.

    The target θ_t is the model that LIE would upload. From θ = θ_t, the attack takes `steps`
    gradient steps on β |θ - θ_t|² + α |J(θ)|_F². After these steps, the attacker uploads θ as its
    model.

    The term |J(θ)|_F² is the squared norm of the model's Jacobian on the attacker's data, as
    `Knowledge.jacobian` estimates it. The paper does not specify its loss L_LIE, the two
    coefficients or the optimizer. In our interpretation, the squared distance to the target
    replaces L_LIE.

    >>> knowledge = Knowledge(
    ...     participants=20,
    ...     attackers=6,
    ...     honest_BD=torch.tensor([[0.0], [2.0], [4.0]]),
    ...     reference_D=torch.zeros(1),
    ...     jacobian=lambda parameters_D, draws: (parameters_D.square().sum(), 2 * parameters_D),
    ... )
    >>> JAA(z=0, alpha=1, beta=1, steps=100).apply(torch.zeros(1, 1), knowledge)
    tensor([[1.]])
    """

    paper = "MSDFL, section VII (JAA)"
    identical: ClassVar[bool] = False
    alpha: float = Field(default=1e-3, ge=0)
    """Weight of the Jacobian's norm. If `alpha` is larger than the default, the Jacobian's norm
    outweighs the distance to LIE's target. With `alpha` = 0.1, the norm of an upload is several
    times the norm of an honest upload. Any bound on norms then stops the attack."""
    beta: float = Field(default=1.0, ge=0)
    """Weight of the squared distance to LIE's target."""
    steps: int = Field(default=10, ge=1)
    """Number of gradient steps."""
    learning_rate: float = Field(default=0.1, gt=0)
    """Step size."""

    @property
    def uses_samples(self) -> bool:
        return True

    def craft(self, own_FD: Tensor, knowledge: Knowledge) -> Tensor:
        if knowledge.jacobian is None:
            raise ConfigurationError("jaa needs the Jacobian of the model on the attacker's data")
        start_FD = start_models(own_FD, knowledge, self.name)
        target_FD = start_FD + super().craft(own_FD, knowledge).double()
        theta_FD = target_FD.clone()
        draws = per_attacker(knowledge, self.name, len(own_FD))
        for _ in range(self.steps):
            penalty_FD = torch.stack(
                [
                    knowledge.jacobian(theta_D.to(own_FD.dtype), draw)[1].to(theta_D)
                    for theta_D, draw in zip(theta_FD, draws, strict=True)
                ]
            )
            slope_FD = 2 * self.beta * (theta_FD - target_FD) + self.alpha * penalty_FD
            theta_FD = theta_FD - self.learning_rate * slope_FD
        return theta_FD - start_FD
