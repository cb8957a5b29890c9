"""The Jacobian-aware attack on a penalty whose descent is known in closed form."""

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.attacks import craft
from rampart_fl.shared.attacks.base import Knowledge
from rampart_fl.shared.attacks.model import attacks
from rampart_fl.shared.errors import ConfigurationError

HONEST_BD = torch.tensor([[0.0, 1.0], [2.0, 5.0], [4.0, 0.0]], dtype=torch.float64)
START_D = torch.tensor([10.0, -10.0], dtype=torch.float64)


def ridge(theta_D: Tensor, draws: torch.Generator) -> tuple[Tensor, Tensor]:
    return theta_D.square().sum(), 2 * theta_D


def run(**parameters: float) -> Tensor:
    knowledge = Knowledge(20, 6, HONEST_BD, reference_D=START_D, jacobian=ridge)
    attack = attacks.build("jaa", z=1.0, **parameters)
    return attack.apply(torch.zeros(1, 2).double(), knowledge)[0]


def test_upload_equals_the_explicit_recursion() -> None:
    target_D = START_D + craft("lie", HONEST_BD, n=20, m=6, z=1.0)
    theta_D = target_D
    for _ in range(10):
        theta_D = theta_D - 0.05 * (2 * 0.5 * (theta_D - target_D) + 0.3 * 2 * theta_D)
    out_D = run(alpha=0.3, beta=0.5, learning_rate=0.05)
    torch.testing.assert_close(out_D, theta_D - START_D)


def test_upload_converges_to_the_weighted_optimum() -> None:
    target_D = START_D + craft("lie", HONEST_BD, n=20, m=6, z=1.0)
    out_D = run(alpha=1.0, beta=3.0, steps=500)
    torch.testing.assert_close(START_D + out_D, 3 / 4 * target_D)


def test_jaa_without_penalty_equals_lie() -> None:
    torch.testing.assert_close(run(alpha=0.0), craft("lie", HONEST_BD, n=20, m=6, z=1.0))


def test_jaa_with_defaults_stays_near_the_lie_target() -> None:
    lie_D = craft("lie", HONEST_BD, n=20, m=6, z=1.0)
    assert float((run() - lie_D).norm()) < 0.1 * float((START_D + lie_D).norm())


def test_missing_knowledge_is_named_in_the_error() -> None:
    own_FD = torch.zeros(1, 2).double()
    with pytest.raises(ConfigurationError, match="Jacobian"):
        attacks.build("jaa").apply(own_FD, Knowledge(20, 6, HONEST_BD, reference_D=START_D))
    with pytest.raises(ConfigurationError, match="from which the attackers started"):
        attacks.build("jaa").apply(own_FD, Knowledge(20, 6, HONEST_BD, jacobian=ridge))
