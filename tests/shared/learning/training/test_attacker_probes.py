"""Attackers' probes of the shared model: the Jacobian's norm against its definition."""

import pytest
import torch
from torch import nn

from rampart_fl.shared.learning.data.client_data import ClientData
from rampart_fl.shared.learning.network.stacked import Stacked
from rampart_fl.shared.learning.training.attacker_probes import initial_parameters, jacobian
from rampart_fl.shared.learning.training.learner import Learner
from rampart_fl.shared.learning.training.personalizers import personalizers
from tests.shared.learning.conftest import make_experiment


def linear() -> tuple[Learner, ClientData]:
    """z = W x + b on five samples: the Jacobian does not depend on the parameters."""
    draws = torch.Generator().manual_seed(4)
    x = torch.randn(5, 1, 2, 2, generator=draws, dtype=torch.float64)
    data = ClientData(x, torch.zeros(5).long(), x, torch.zeros(5).long(), 3)
    module = nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).double()
    return Learner(Stacked(module), personalizers.build("none"), make_experiment().training), data


@pytest.mark.slow
def test_jacobian_norm_of_a_linear_model_matches_its_closed_form() -> None:
    learner, data = linear()
    estimate, model_D = jacobian(learner, data), learner.initial_model()
    draws = torch.Generator().manual_seed(1)
    needs = [estimate(model_D, draws) for _ in range(1500)]
    expected = 3 * (data.x_train.flatten(1).square().sum(1) + 1).mean()
    mean = torch.stack([norm for norm, _ in needs]).mean()
    assert float(mean) == pytest.approx(float(expected), rel=0.05)
    assert all(not bool(gradient_D.any()) for _, gradient_D in needs[:10])


def test_jacobian_norm_gradient_matches_finite_differences() -> None:
    learner = Learner.of(make_experiment(model={"name": "mlp", "hidden": [4]}))
    learner.network.module.double()
    draws = torch.Generator().manual_seed(4)
    x = torch.rand(6, 1, 8, 8, generator=draws, dtype=torch.float64)
    data = ClientData(x, torch.zeros(6).long(), x, torch.zeros(6).long(), 10)
    estimate, model_D = jacobian(learner, data), learner.initial_model()

    def norm(at_D: torch.Tensor) -> float:
        return float(estimate(at_D, torch.Generator().manual_seed(2))[0])

    _, gradient_D = estimate(model_D, torch.Generator().manual_seed(2))
    way_D = gradient_D / gradient_D.norm()
    slope = (norm(model_D + 1e-5 * way_D) - norm(model_D - 1e-5 * way_D)) / 2e-5
    assert slope == pytest.approx(float(gradient_D.norm()), rel=1e-4)


def test_fresh_parameters_depend_only_on_the_generators_seed() -> None:
    draw = initial_parameters(make_experiment())
    first, again = (draw(torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(first, again)
    assert not torch.equal(first, draw(torch.Generator().manual_seed(8)))
