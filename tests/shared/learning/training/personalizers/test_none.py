"""Without personalization, nothing stays with the client."""

import torch

from rampart_fl.shared.learning.training.personalizers import personalizers


def test_nothing_is_kept() -> None:
    member = personalizers.build("none")
    assert member.init(torch.zeros(2, 3)) == {}
    assert member.personalized(torch.zeros(2, 3), {}) is None
