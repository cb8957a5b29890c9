"""A step's gradients do not depend on the number of passes."""

from collections.abc import Callable

import pytest
import torch

from rampart_fl.shared.learning.network.stacked import Stacked
from rampart_fl.shared.learning.training.learner import Learner
from rampart_fl.shared.learning.training.personalizers import Batch
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
