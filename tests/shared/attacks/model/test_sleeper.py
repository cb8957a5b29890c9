"""A sleeper is honest until its round."""

import torch

from rampart_fl.shared.attacks.base import Knowledge
from rampart_fl.shared.attacks.model import attacks


def test_sleeper_is_honest_until_it_wakes() -> None:
    attack = attacks.build("sleeper", wakes=3, attack={"name": "gap_inflation", "gap": 9})
    for at_round, sign, gap in ((2, 1.0, 0.5), (3, -1.0, 9.0)):
        knowledge = Knowledge(4, 1, round=at_round)
        assert attack.apply(torch.ones(1, 2), knowledge).tolist() == [[sign, sign]]
        assert attack.report({"loss_gap": 0.5}, knowledge) == {"loss_gap": gap}


def test_sleeper_asks_for_the_knowledge_of_its_inner_attack() -> None:
    assert attacks.build("sleeper").asks_for == "agnostic"
    assert attacks.build("sleeper", attack={"name": "lie", "knows": "full"}).asks_for == "full"
