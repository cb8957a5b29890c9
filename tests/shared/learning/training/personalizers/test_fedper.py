"""FedPer: a plain PyTorch loop, and heads that are neither uploaded nor received."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.data.client_data import ClientData
from rampart_fl.shared.learning.training.learner import Learner
from tests.shared.learning.training.personalizers.conftest import Plain


def cross_entropy(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(module(x), y)


def test_fedper_matches_a_plain_pytorch_loop(plain: Callable[[object], Plain]) -> None:
    one = plain("fedper")
    trained, rate = one.at_once(), one.learner.training.learning_rate
    for k, received_D in enumerate(one.received_KD):
        body_D = received_D.clone()
        own_head = one.personal["model"][k][one.head_D].clone()
        body_D[one.head_D] = own_head
        for x, y in one.batches(k):
            body_D = body_D - rate * one.gradient(body_D, cross_entropy, x, y)
        update_D = trained.update_KD[k]
        assert (update_D[one.head_D] == 0).all()
        expected_D = (body_D - received_D)[~one.head_D]
        assert torch.allclose(update_D[~one.head_D], expected_D, rtol=0, atol=1e-9)
        assert torch.allclose(trained.personal["model"][k], body_D, rtol=0, atol=1e-9)


def test_received_head_is_ignored(plain: Callable[[object], Plain]) -> None:
    one = plain({"name": "fedper", "head": "output"})
    before = one.at_once()
    one.received_KD[:, one.head_D] += 9
    after = one.at_once()
    assert torch.equal(before.personal["model"], after.personal["model"])
    assert torch.allclose(before.update_KD, after.update_KD, rtol=0, atol=1e-12)
    assert before.metrics["correct_personalized"].equal(after.metrics["correct_personalized"])


@pytest.mark.slow
@pytest.mark.parametrize("privacy", [None, {"clip": 1.0, "noise_multiplier": 1.0}])
def test_fedprox_pulls_only_the_body_towards_the_received_model(
    make_learner: Callable[..., Learner], clients: list[ClientData], privacy: object
) -> None:
    fedprox = {"name": "fedprox", "mu": 0.5}
    training = {"epochs": 2, "batch_size": 4, "privacy": privacy, "objective": [fedprox]}
    if privacy is not None:
        pytest.importorskip("opacus")
    one = Plain(make_learner(personalizer="fedper", training=training), clients)
    before = one.at_once()
    one.received_KD[:, one.head_D] += 9
    after = one.at_once()
    assert torch.equal(before.personal["model"], after.personal["model"])
    without = Plain(one.learner, clients)
    without.learner = replace(one.learner, terms=())
    without.received_KD = one.received_KD
    pulled_KD = before.personal["model"] - without.at_once().personal["model"]
    assert bool(pulled_KD[:, ~one.head_D].any())


def test_head_can_span_several_layers(plain: Callable[[object], Plain]) -> None:
    one = plain({"name": "fedper", "head": "hidden"})
    update_KD = one.at_once().update_KD
    moved = {n for n, u in zip(one.coordinates(), update_KD.any(0), strict=True) if u}
    assert moved == {f"{layer}.{part}" for layer in ("conv1", "conv2", "output") for part in PARTS}


PARTS = ("weight", "bias")


@pytest.mark.parametrize(
    ("personalizer", "model", "message"),
    [
        (
            {"name": "fedper", "head": "outptu"},
            "cnn",
            "no layer 'outptu' with tensors; it has conv1.bias",
        ),
        ("fedper", {"name": "mlp", "hidden": []}, "no body"),
        ("fedbabu", {"name": "mlp", "hidden": []}, "no body"),
    ],
)
def test_unknown_head_layers_and_models_without_a_body_are_rejected(
    make_learner: Callable[..., Learner], personalizer: object, model: object, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make_learner(personalizer=personalizer, model=model)
