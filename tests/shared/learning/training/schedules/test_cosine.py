"""The cosine schedule against torch's."""

import pytest
import torch

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.training.schedules import schedules


def test_cosine_schedule_matches_pytorch() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=8, eta_min=0.1)
    ours = schedules.build("cosine", floor=0.1)
    for round_ in range(9):
        assert ours.share(round_, 8) == pytest.approx(theirs.get_last_lr()[0])
        optimizer.step()
        theirs.step()


def test_cosine_schedule_stays_at_its_floor_past_the_last_round() -> None:
    assert schedules.build("cosine", floor=0.25).share(40, 8) == 0.25


def test_floor_above_1_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match="floor"):
        schedules.build("cosine", floor=2)
