"""Without personalization, clients keep no state."""

import torch

from rampart_fl.shared.learning.training.personalizers import personalizers


def test_clients_keep_no_state_without_personalization() -> None:
    member = personalizers.build("none")
    assert member.init(torch.zeros(2, 3)) == {}
    assert member.personalized(torch.zeros(2, 3), {}) is None
