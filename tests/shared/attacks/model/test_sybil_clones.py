"""Sybil clones: exact or jittered copies of the first attacker's upload."""

from typing import Any

import pytest
import torch

from rampart_fl.shared.attacks.base import Knowledge
from rampart_fl.shared.attacks.model import attacks
from rampart_fl.shared.errors import ConfigurationError

OWN_FD = torch.randn(4, 50, generator=torch.Generator().manual_seed(1))
KNOWLEDGE = Knowledge(9, 4, OWN_FD, colluders_MD=OWN_FD)


def test_clones_without_jitter_are_exact_copies() -> None:
    out_FD = attacks.build("sybil_clones").apply(OWN_FD, KNOWLEDGE)
    assert torch.equal(out_FD, -OWN_FD[:1].expand(4, -1))


def test_jitter_is_relative_to_the_norm_of_the_update() -> None:
    out_FD = attacks.build("sybil_clones", jitter=0.1).apply(OWN_FD, KNOWLEDGE)
    distances = (out_FD + OWN_FD[0]).norm(dim=1) / OWN_FD[0].norm()
    assert distances.tolist() == pytest.approx([0.1] * 4, rel=1e-5)
    assert len({tuple(row) for row in out_FD.tolist()}) == 4


def test_random_inner_attack_is_drawn_once_for_all_clones() -> None:
    out_FD = attacks.build("sybil_clones", attack="gaussian").apply(OWN_FD, KNOWLEDGE)
    assert torch.equal(out_FD, out_FD[:1].expand(4, -1))


@pytest.mark.parametrize(
    "inner",
    ["jaa", {"name": "sleeper", "attack": "jaa"}, {"name": "schedule", "attacks": ["lie", "jaa"]}],
)
def test_attacks_that_use_each_attackers_samples_cannot_be_cloned(inner: Any) -> None:
    with pytest.raises(ConfigurationError, match="differ: each uses its own samples"):
        attacks.build("sybil_clones", attack=inner)
