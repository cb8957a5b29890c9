"""Fine-tuning: a plain PyTorch loop from the received model; the upload is the same model."""

from collections.abc import Callable

import torch
from torch.nn.functional import cross_entropy

from tests.shared.learning.training.personalizers.conftest import Plain


def test_fine_tuning_matches_a_plain_pytorch_loop(plain: Callable[[object], Plain]) -> None:
    one = plain("fine_tune")
    trained, rate = one.at_once(), one.learner.training.learning_rate
    for k, w_D in enumerate(one.received_KD):
        for x, y in one.batches(k):
            w_D = w_D - rate * one.gradient(w_D, lambda m, x, y: cross_entropy(m(x), y), x, y)
        assert torch.allclose(trained.personal["model"][k], w_D, rtol=0, atol=1e-9)


def test_personal_model_equals_the_uploaded_model(plain: Callable[[object], Plain]) -> None:
    one = plain("fine_tune")
    trained, uploads_KD = one.at_once(), plain("none").at_once().update_KD
    assert torch.equal(trained.update_KD, uploads_KD)
    kept_KD = trained.personal["model"]
    assert torch.allclose(kept_KD, one.received_KD + uploads_KD, rtol=0, atol=1e-12)
    metrics = trained.metrics
    assert torch.equal(metrics["correct_personalized"], metrics["correct_local"])
