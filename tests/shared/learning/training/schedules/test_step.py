"""The step schedule against torch's."""

import pytest
import torch

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.training.schedules import schedules


def test_step_schedule_matches_pytorch() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    theirs = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.2)
    ours = schedules.build("step", every=3, factor=0.2)
    for round_ in range(10):
        assert ours.share(round_, 10) == pytest.approx(theirs.get_last_lr()[0])
        optimizer.step()
        theirs.step()


def test_missing_interval_and_factor_above_1_are_rejected() -> None:
    with pytest.raises(ConfigurationError, match="every"):
        schedules.build("step")
    with pytest.raises(ConfigurationError, match="factor"):
        schedules.build("step", every=1, factor=2)
