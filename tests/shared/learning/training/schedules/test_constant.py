"""The constant schedule, and the effect of any schedule on training."""

from collections.abc import Callable
from typing import Any

import torch

from rampart_fl.shared.learning.data.client_data import ClientData
from rampart_fl.shared.learning.training.learner import Learner
from rampart_fl.shared.learning.training.local import train_round
from rampart_fl.shared.learning.training.schedules import schedules

MakeLearner = Callable[..., Learner]


def update(
    make_learner: MakeLearner, data: ClientData, round_: int, rate: float, schedule: Any
) -> torch.Tensor:
    training = {"epochs": 1, "batch_size": 4, "learning_rate": rate, "schedule": schedule}
    learner = make_learner(training=training, rounds=10)
    received_D = learner.initial_model()
    state = learner.first_state(received_D)
    return train_round(learner, data, received_D, state, seed=1, client="a", round_=round_).update_D


def test_constant_schedule_is_always_one() -> None:
    assert {schedules.build("constant").share(t, 9) for t in range(12)} == {1.0}


def test_each_round_trains_with_its_scheduled_learning_rate(
    make_learner: MakeLearner, clients: list[ClientData]
) -> None:
    schedule = {"name": "step", "every": 2, "factor": 0.5}
    for round_, rate in ((1, 0.1), (2, 0.05), (5, 0.025)):
        scheduled = update(make_learner, clients[0], round_, 0.1, schedule)
        fixed = update(make_learner, clients[0], round_, rate, "constant")
        assert torch.equal(scheduled, fixed)
