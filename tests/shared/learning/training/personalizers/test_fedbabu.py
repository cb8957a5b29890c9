"""FedBABU: a plain PyTorch loop of both models, for each choice of fine-tuned parameters."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.shared.learning.training.personalizers.conftest import Plain


def loss(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(module(x), y)


@pytest.mark.parametrize("tuned", ["all", "head", "body"])
def test_fedbabu_matches_a_plain_pytorch_loop(plain: Callable[[object], Plain], tuned: str) -> None:
    one = plain({"name": "fedbabu", "tuned": tuned})
    trained, rate = one.at_once(), one.learner.training.learning_rate
    body_D = ~one.head_D
    moved_D = {"all": body_D | one.head_D, "head": one.head_D, "body": body_D}[tuned]
    for k, received_D in enumerate(one.received_KD):
        shared_D, own_D = received_D.clone(), received_D.clone()
        for x, y in one.batches(k):
            shared_D = shared_D - rate * body_D * one.gradient(shared_D, loss, x, y)
            own_D = own_D - rate * moved_D * one.gradient(own_D, loss, x, y)
        update_D = trained.update_KD[k]
        assert (update_D[one.head_D] == 0).all()
        assert torch.allclose(received_D + update_D, shared_D, rtol=0, atol=1e-9)
        assert torch.allclose(trained.personal["model"][k], own_D, rtol=0, atol=1e-9)


def test_each_round_fine_tunes_from_the_received_model(plain: Callable[[object], Plain]) -> None:
    one = plain("fedbabu")
    before = one.at_once()
    one.personal = before.personal
    assert torch.equal(one.at_once().personal["model"], before.personal["model"])
