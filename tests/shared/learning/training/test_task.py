"""Gradients of a step: the number of passes does not matter, and learning rates may be tiny."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from rampart_fl.shared.experiment.schema import Training
from rampart_fl.shared.learning.data.client_data import ClientData
from rampart_fl.shared.learning.network.stacked import Stacked
from rampart_fl.shared.learning.network.vector import flatten
from rampart_fl.shared.learning.training.cohort import Batches, Cohort
from rampart_fl.shared.learning.training.learner import Learner
from rampart_fl.shared.learning.training.local import train
from rampart_fl.shared.learning.training.personalizers import Batch, personalizers
from rampart_fl.shared.learning.training.schedules import Schedule
from rampart_fl.shared.learning.training.task import mean_loss_gradients


@pytest.mark.parametrize("most", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("model", ["cnn", {"name": "wide_resnet", "depth": 10, "width": 1}])
def test_gradients_are_independent_of_the_number_of_passes(
    make_learner: Callable[..., Learner],
    monkeypatch: pytest.MonkeyPatch,
    model: object,
    most: int,
) -> None:
    learner = make_learner(model=model)
    draws = torch.Generator().manual_seed(1)
    first_D = learner.initial_model()
    noise_PKD = torch.randn(2, 5, len(first_D), generator=draws, dtype=torch.float64)
    one_KD, other_KD = first_D + 0.01 * noise_PKD
    x_KB = torch.rand(5, 3, 1, 8, 8, generator=draws, dtype=torch.float64)
    y_KB = torch.randint(10, (5, 3), generator=draws)
    weight_KB = torch.rand(5, 3, generator=draws, dtype=torch.float64)
    weight_KB[2, 1:] = 0
    prior_KC = torch.rand(5, 10, generator=draws, dtype=torch.float64)

    def gradients(at_once: int) -> tuple[torch.Tensor, ...]:
        monkeypatch.setattr(Stacked, "trained_at_once", lambda self, x: at_once)
        batch = Batch(x_KB, y_KB, weight_KB)
        return mean_loss_gradients(
            learner.network, learner.scoring, batch, [one_KD, other_KD], [prior_KC, None]
        )

    for found_KD, expected_KD in zip(gradients(most), gradients(10), strict=True):
        assert torch.allclose(found_KD, expected_KD, rtol=0, atol=1e-12)


class Fixed(Schedule):
    """A schedule with one rate."""

    rate: float

    def share(self, round_: int, rounds: int) -> float:
        return self.rate


@pytest.mark.parametrize("personalizer", ["none", "fedcap", "fedbabu", "apfl", "fedrod", "fedper"])
@pytest.mark.parametrize("rate", [0.0, 1e-45, 1e-30, 1e-19])
def test_batch_normalization_stays_finite_at_any_learning_rate(
    rate: float, personalizer: str
) -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    training = Training(epochs=2, batch_size=4, learning_rate=1, momentum=0.5)
    network = Stacked(module)
    schedule = Fixed.model_construct(rate=rate)
    learner = Learner(network, personalizers.parse(personalizer), training, schedule=schedule)
    draws = torch.Generator().manual_seed(2)
    x, y = 1000 * torch.rand(10, 3, generator=draws), torch.randint(2, (10,), generator=draws)
    model_KD = flatten(module)[None]
    batches = Batches.draw([10], ["a"], training, seed=5, round_=0)
    cohort = Cohort.of([ClientData(x, y, x, y, 2)], torch.float32)
    trained = train(learner, cohort, batches, model_KD, learner.first_states(model_KD))

    assert all(bool(one.isfinite().all()) for one in trained.personal.values())
    end = network.spec.trainable
    assert float(trained.update_KD[:, :end].abs().max()) < 1e-10
    moved = trained.update_KD[:, end:] != 0
    assert bool(moved.all() if rate == 1e-19 else not moved.any())
