"""The cosine schedule against torch's."""

import pytest
import torch

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.training.schedules import schedules


def test_it_is_that_of_torch() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=8, eta_min=0.1)
    ours = schedules.build("cosine", floor=0.1)
    for round_ in range(9):
        assert ours.share(round_, 8) == pytest.approx(theirs.get_last_lr()[0])
        optimizer.step()
        theirs.step()


def test_past_the_last_round_it_stays_low() -> None:
    assert schedules.build("cosine", floor=0.25).share(40, 8) == 0.25


def test_parameters() -> None:
    with pytest.raises(ConfigurationError, match="floor"):
        schedules.build("cosine", floor=2)
