"""The attack `rejoin`: wraps another attack and sets a flag that makes the agent rejoin."""

import torch

from rampart_fl.shared.attacks.base import Knowledge
from rampart_fl.shared.attacks.model import attacks


def test_rejoin_applies_its_inner_attack_and_lets_the_agent_rejoin() -> None:
    attack = attacks.build("rejoin", attack={"name": "model_replacement", "scale": 3})
    assert attack.apply(torch.ones(1, 2), Knowledge(4, 1)).tolist() == [[3.0, 3.0]]
    assert attack.rejoins
    assert attacks.build("sleeper", attack="rejoin").rejoins
    assert not attacks.build("sleeper").rejoins
