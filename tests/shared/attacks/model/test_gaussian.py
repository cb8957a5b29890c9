"""Gaussian noise: its moments are independent of the honest update."""

import torch

from rampart_fl.shared.attacks.base import Knowledge
from rampart_fl.shared.attacks.model import attacks


def test_noise_has_the_configured_moments_for_any_honest_update() -> None:
    attack = attacks.build("gaussian", mean=2, std=3)
    out_FD = attack.apply(torch.full((2, 20_000), 100.0), Knowledge(4, 2, seed=1))
    torch.testing.assert_close(out_FD.mean(dim=1), torch.full((2,), 2.0), rtol=0, atol=0.1)
    torch.testing.assert_close(out_FD.std(dim=1), torch.full((2,), 3.0), rtol=0.03, atol=0)


def test_draws_differ_by_attacker_round_and_seed() -> None:
    attack, own_FD = attacks.build("gaussian"), torch.zeros(2, 8)
    rows = [
        tuple(row)
        for knowledge in (Knowledge(4, 2), Knowledge(4, 2, round=1), Knowledge(4, 2, seed=1))
        for row in attack.apply(own_FD, knowledge).tolist()
    ]
    assert len(set(rows)) == 6
