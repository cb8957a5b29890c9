"""Local training: a plain PyTorch loop on the client's own data, whatever the server sends."""

from collections.abc import Callable

import torch
from torch.nn.functional import cross_entropy

from tests.shared.learning.training.personalizers.conftest import Plain


def test_local_training_matches_a_plain_pytorch_loop(plain: Callable[[object], Plain]) -> None:
    one = plain("local")
    trained, rate = one.at_once(), one.learner.training.learning_rate
    for k, v_D in enumerate(one.personal["model"]):
        for x, y in one.batches(k):
            v_D = v_D - rate * one.gradient(v_D, lambda m, x, y: cross_entropy(m(x), y), x, y)
        assert torch.allclose(trained.personal["model"][k], v_D, rtol=0, atol=1e-9)


def test_local_training_uploads_nothing_and_ignores_the_server(
    plain: Callable[[object], Plain],
) -> None:
    one = plain("local")
    first = one.at_once()
    one.received_KD = one.received_KD + 0.5
    other = one.at_once()
    assert (first.update_KD == 0).all()
    assert torch.equal(first.personal["model"], other.personal["model"])
