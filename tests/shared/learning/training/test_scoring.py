"""The losses of tasks: PyTorch's cross entropy, and half the squared residual."""

import pytest
import torch
from torch.nn import functional

from rampart_fl.shared.learning.training.scoring import SCORINGS


def test_classification_uses_cross_entropy_and_counts_correct_predictions() -> None:
    draws = torch.Generator().manual_seed(1)
    logits, y = torch.randn(2, 3, 5, generator=draws), torch.randint(5, (2, 3), generator=draws)
    scoring = SCORINGS["classification"]
    for k in range(2):
        for b in range(3):
            expected = functional.cross_entropy(logits[k, b], y[k, b])
            assert scoring.losses(logits, y)[k, b].item() == pytest.approx(expected.item())
            assert scoring.scores(logits, y)[k, b] == (logits[k, b].argmax() == y[k, b])


def test_estimation_loss_is_half_the_squared_residual() -> None:
    scoring = SCORINGS["estimation"]
    residual, y = torch.tensor([[[3.0, 4.0], [0.0, 1.0]]]), torch.zeros(1, 2, dtype=torch.long)
    assert scoring.losses(residual, y).tolist() == [[12.5, 0.5]]
    assert scoring.scores(residual, y).tolist() == [[25, 1]]
