"""Functions for attackers: new initial parameters for a model, and the norm of its Jacobian.

Legend: S samples, D parameters.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.learning.data.client_data import ClientData
from rampart_fl.shared.learning.network.jacobian import directions, squared_norm
from rampart_fl.shared.learning.network.vector import build_module, flatten
from rampart_fl.shared.learning.training.learner import Learner


def initial_parameters(experiment: Experiment) -> Callable[[torch.Generator], Tensor]:
    """A function that draws initial parameters (D,) for a new model of this experiment.

    >>> draw = initial_parameters(Experiment.load("digits-benign"))
    >>> one, other = (draw(torch.Generator().manual_seed(seed)) for seed in (1, 2))
    >>> one.shape == other.shape, torch.equal(one, other)
    (True, False)
    """

    def draw(draws: torch.Generator) -> Tensor:
        seed = int(torch.randint(2**31, (), generator=draws))
        return flatten(build_module(experiment.model_copy(update={"seed": seed})))

    return draw


def jacobian(
    learner: Learner, data: ClientData
) -> Callable[[Tensor, torch.Generator], tuple[Tensor, Tensor]]:
    """Returns a function (parameters (D,), draws) -> (squared Jacobian norm, its gradient (D,)).

    The squared norm is the mean over samples s of |∂z_s/∂θ|_F², where z_s are the logits of sample
    s, and θ are the parameters. The function estimates this norm as HMSDFL does, with one random
    projection.
    """

    def estimate(parameters_D: Tensor, draws: torch.Generator) -> tuple[Tensor, Tensor]:
        x_1S = data.x_train.to(parameters_D).unsqueeze(0)
        samples = len(data.x_train)
        norm_1, gradient_1D = squared_norm(
            learner.network,
            parameters_D.unsqueeze(0),
            x_1S,
            [samples],
            lambda classes: [directions(samples, classes, draws).unsqueeze(0)],
        )
        return norm_1[0], gradient_1D[0]

    return estimate
