"""Mimicry: an exact copy of one client."""

import pytest
import torch

from rampart_fl.shared.attacks import craft
from rampart_fl.shared.attacks.model import attacks
from rampart_fl.shared.errors import ConfigurationError

HONEST_ND = torch.tensor([[1.0, 2.0], [3.0, 4.0]])


def test_mimic_copies_its_target() -> None:
    assert craft("mimic", HONEST_ND, n=4, m=2).tolist() == [1.0, 2.0]
    assert craft("mimic", HONEST_ND, n=4, m=2, target=1).tolist() == [3.0, 4.0]


def test_target_beyond_the_known_clients_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="cannot copy client 2: only 2"):
        craft("mimic", HONEST_ND, n=4, m=2, target=2)


def test_mimic_asks_for_full_knowledge_by_default() -> None:
    assert attacks.build("mimic").asks_for == "full"
