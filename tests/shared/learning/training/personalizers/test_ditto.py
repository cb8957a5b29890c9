"""Ditto: a plain PyTorch loop, and both extremes of the pull towards the global model."""

from collections.abc import Callable

import pytest
import torch
from torch.nn.functional import cross_entropy

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.training.personalizers import personalizers
from tests.shared.learning.training.personalizers.conftest import Plain


def ditto(pull: float) -> dict[str, object]:
    return {"name": "ditto", "lambda": pull}


def test_ditto_matches_a_plain_pytorch_loop(plain: Callable[[object], Plain]) -> None:
    one = plain(ditto(0.3))
    trained, rate = one.at_once(), one.learner.training.learning_rate
    for k, received_D in enumerate(one.received_KD):
        v_D = one.personal["model"][k]
        for x, y in one.batches(k):
            slope_D = one.gradient(v_D, lambda m, x, y: cross_entropy(m(x), y), x, y)
            v_D = v_D - rate * (slope_D + 0.3 * (v_D - received_D))
        assert torch.allclose(trained.personal["model"][k], v_D, rtol=0, atol=1e-9)


def test_lambda_0_equals_local_training_beside_plain_averaging(
    plain: Callable[[object], Plain],
) -> None:
    free, local, averaged = (plain(name).at_once() for name in (ditto(0.0), "local", "none"))
    assert torch.allclose(free.personal["model"], local.personal["model"], rtol=0, atol=1e-12)
    assert torch.allclose(free.update_KD, averaged.update_KD, rtol=0, atol=1e-12)


def test_strong_pull_keeps_the_personal_model_near_the_received_model(
    plain: Callable[[object], Plain],
) -> None:
    """With η λ = 1, each step lands on the received model minus one gradient step."""
    one = plain(ditto(100.0))
    assert one.learner.training.learning_rate == 1 / 100.0
    kept_KD = one.at_once().personal["model"]
    assert (kept_KD - one.received_KD).abs().max() < 0.05


def test_negative_lambda_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match=r"lambda.*greater than or equal to 0"):
        personalizers.build("ditto", **{"lambda": -1})
