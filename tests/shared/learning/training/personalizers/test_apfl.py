"""APFL: a hand-computed mixture, a plain PyTorch loop, and both extremes of alpha."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.training.personalizers import personalizers
from tests.shared.learning.training.personalizers.conftest import Plain


def loss(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(module(x), y)


def test_apfl_matches_a_plain_pytorch_loop(plain: Callable[[object], Plain]) -> None:
    one = plain({"name": "apfl", "alpha": 0.3})
    trained, rate = one.at_once(), one.learner.training.learning_rate
    for k, received_D in enumerate(one.received_KD):
        w_D, v_D, alpha = received_D.clone(), one.personal["model"][k].clone(), 0.3
        for x, y in one.batches(k):
            mixed_D = one.gradient(alpha * v_D + (1 - alpha) * w_D, loss, x, y)
            slope = float((v_D - w_D) @ mixed_D)
            w_D, v_D = (
                w_D - rate * one.gradient(w_D, loss, x, y),
                v_D - rate * alpha * mixed_D,
            )
            alpha = min(max(alpha - rate * slope, 0.0), 1.0)
        assert torch.allclose(received_D + trained.update_KD[k], w_D, rtol=0, atol=1e-9)
        assert torch.allclose(trained.personal["model"][k], v_D, rtol=0, atol=1e-9)
        assert trained.personal["alpha"][k].item() == pytest.approx(alpha, abs=1e-9)
        assert alpha != 0.3


@pytest.mark.parametrize(("alpha", "like"), [(0.0, "none"), (1.0, "local")])
def test_fixed_alpha_0_and_1_reduce_to_global_and_local_training(
    plain: Callable[[object], Plain], alpha: float, like: str
) -> None:
    one, other = plain({"name": "apfl", "alpha": alpha, "adaptive": False}), plain(like)
    mixed, alone = one.at_once(), other.at_once()
    uploads = plain("none").at_once().update_KD
    assert torch.allclose(mixed.update_KD, uploads, rtol=0, atol=1e-12)
    trained_KD = one.received_KD + mixed.update_KD
    own_KD = one.learner.personalizer.personalized(trained_KD, mixed.personal)
    assert own_KD is not None
    expected_KD = trained_KD if like == "none" else alone.personal["model"]
    assert torch.allclose(own_KD, expected_KD, rtol=0, atol=1e-12)
    assert (mixed.personal["alpha"] == alpha).all()


def test_personalized_model_is_the_alpha_weighted_mixture() -> None:
    """0.25 · 8 + 0.75 · 4."""
    member = personalizers.build("apfl")
    personal = {"model": torch.tensor([[8.0]]), "alpha": torch.tensor([0.25])}
    mixed_KD = member.personalized(torch.tensor([[4.0]]), personal)
    assert mixed_KD is not None
    assert mixed_KD.tolist() == [[5.0]]


def test_alpha_above_1_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match="alpha"):
        personalizers.build("apfl", alpha=1.5)
