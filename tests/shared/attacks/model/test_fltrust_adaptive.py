"""The adaptive attack on FLTrust: no direction on the sphere does more harm."""

import math

import torch
from torch import Tensor

from rampart_fl.shared.attacks import craft
from rampart_fl.shared.attacks.base import Knowledge
from rampart_fl.shared.attacks.model import attacks


def fltrust(rows: list[Tensor], trusted_D: Tensor) -> Tensor:
    """FLTrust row by row, from its definition; for many rounds at once if a row is (A, D)."""
    total, weights = torch.zeros_like(trusted_D), torch.zeros(1).double()
    for u_D in rows:
        length = u_D.norm(dim=-1, keepdim=True)
        trust = ((u_D @ trusted_D)[..., None] / length / trusted_D.norm()).clamp(min=0)
        total = total + trust * u_D * trusted_D.norm() / length
        weights = weights + trust
    return torch.where(weights > 0, total / weights, total)


def harm(benign_BD: Tensor, crafted_D: Tensor, trusted_D: Tensor, m: int) -> Tensor:
    """The aggregate along the honest signs, if m clients send a crafted row (D,) or each of (A, D).

    A lower value means more harm.
    """
    result_D = fltrust([*benign_BD, *[crafted_D] * m], trusted_D)
    return result_D @ benign_BD.mean(dim=0).sign()


def round_of(seed: int, d: int) -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(seed)
    benign_BD = 0.5 + torch.randn(7, d, generator=draws, dtype=torch.float64)
    return benign_BD, 0.5 + 0.3 * torch.randn(d, generator=draws, dtype=torch.float64)


def test_no_direction_in_two_dimensions_does_more_harm() -> None:
    for seed in range(3):
        benign_BD, trusted_D = round_of(seed, 2)
        knowledge = Knowledge(10, 3, benign_BD, server_update_D=trusted_D)
        own_FD = torch.zeros(1, 2).double()
        crafted_D = attacks.build("fltrust_adaptive", knows="full").apply(own_FD, knowledge)[0]
        angles_A = torch.linspace(-math.pi, math.pi, 600, dtype=torch.float64)
        tried_AD = torch.stack([angles_A.cos(), angles_A.sin()], dim=1)
        best = harm(benign_BD, tried_AD, trusted_D, 3).min()
        assert harm(benign_BD, crafted_D, trusted_D, 3) <= best + 1e-9
        assert math.isclose(float(crafted_D.norm()), float(trusted_D.norm()), rel_tol=1e-9)


def test_no_random_direction_does_more_harm() -> None:
    benign_BD, _ = round_of(3, 12)
    trusted_D = benign_BD.mean(dim=0)
    crafted_D = craft("fltrust_adaptive", benign_BD, n=10, m=3)
    reached = harm(benign_BD, crafted_D, trusted_D, 3)
    draws = torch.Generator().manual_seed(0)
    for scale in (0.01, 0.1, 1.0, 10.0):
        for _ in range(60):
            tried_D = crafted_D + scale * torch.randn(12, generator=draws, dtype=torch.float64)
            assert harm(benign_BD, tried_D, trusted_D, 3) >= reached - 1e-9
    assert reached < benign_BD.mean(dim=0).sign() @ fltrust([*benign_BD], trusted_D)


def test_attack_stays_honest_if_harm_and_trust_share_a_direction() -> None:
    crafted_D = craft("fltrust_adaptive", torch.ones(3, 4), n=5, m=2)
    torch.testing.assert_close(crafted_D, torch.ones(4))
