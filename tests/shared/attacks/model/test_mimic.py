"""Mimicry: an exact copy of one client."""

import torch

from rampart_fl.shared.attacks import craft
from rampart_fl.shared.attacks.model import attacks

HONEST_ND = torch.tensor([[1.0, 2.0], [3.0, 4.0]])


def test_mimic_copies_its_target() -> None:
    assert craft("mimic", HONEST_ND, n=4, m=2).tolist() == [1.0, 2.0]
    assert craft("mimic", HONEST_ND, n=4, m=2, target=1).tolist() == [3.0, 4.0]


def test_target_beyond_the_known_clients_is_counted_from_the_first_again() -> None:
    """In a round with few clients, an attack that cannot act as planned must not end the run."""
    for target, copied in ((2, [1.0, 2.0]), (7, [3.0, 4.0])):
        assert craft("mimic", HONEST_ND, n=4, m=2, target=target).tolist() == copied


def test_mimic_asks_for_full_knowledge_by_default() -> None:
    assert attacks.build("mimic").asks_for == "full"
