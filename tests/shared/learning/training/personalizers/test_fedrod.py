"""FedRoD: a reference with the paper's explicit features and two heads, and known results.

Legend: D parameters, B samples.
"""

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from rampart_fl.shared.attacks.data.label_flip import LabelFlip
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.data.client_data import ClientData, poisoned
from rampart_fl.shared.learning.network.vector import load
from rampart_fl.shared.learning.training.cohort import Batches, Cohort
from rampart_fl.shared.learning.training.learner import Learner
from rampart_fl.shared.learning.training.local import train
from tests.shared.learning.training.personalizers.conftest import NAMES, ROUND, SEED, Plain


def by_features(one: Plain, k: int) -> tuple[Tensor, nn.Linear]:
    """One client's round with explicit features: (generic model, personal head)."""
    module = load(copy.deepcopy(one.learner.network.module), one.received_KD[k])
    assert isinstance(module, nn.Sequential)
    body, generic = module[:-1], module[-1]
    assert isinstance(generic, nn.Linear)
    own = nn.Linear(generic.in_features, generic.out_features, dtype=torch.float64)
    nn.init.zeros_(own.weight)
    nn.init.zeros_(own.bias)
    counts = torch.bincount(one.clients[k].y_train, minlength=10)
    prior = counts.double().log()
    rate = one.learner.training.learning_rate
    for x, y in one.batches(k):
        features = body(x)
        z = generic(features)
        functional.cross_entropy(z + prior, y).backward()
        functional.cross_entropy(z.detach() + own(features.detach()), y).backward()
        with torch.no_grad():
            for parameter in [*module.parameters(), *own.parameters()]:
                assert parameter.grad is not None
                parameter -= rate * parameter.grad
                parameter.grad = None
    tensors = dict(module.named_parameters())
    names = [tensor.name for tensor in one.learner.spec.tensors]
    return torch.cat([tensors[name].detach().flatten() for name in names]), own


def test_fedrod_matches_a_plain_pytorch_loop_on_explicit_features(
    plain: Callable[[object], Plain],
) -> None:
    one = plain("fedrod")
    trained = one.at_once()
    for k, received_D in enumerate(one.received_KD):
        generic_D, own = by_features(one, k)
        assert torch.allclose(received_D + trained.update_KD[k], generic_D, rtol=0, atol=1e-9)
        head_D = trained.personal["head"][k]
        assert (head_D[~one.head_D] == 0).all()
        expected = torch.cat([own.bias.detach(), own.weight.detach().flatten()])
        assert torch.allclose(head_D[one.head_D], expected, rtol=0, atol=1e-9)


def test_prediction_is_the_sum_of_both_heads(plain: Callable[[object], Plain]) -> None:
    one = plain("fedrod")
    trained = one.at_once()
    for k, data in enumerate(one.clients):
        generic_D, own = by_features(one, k)
        module = load(copy.deepcopy(one.learner.network.module), generic_D)
        assert isinstance(module, nn.Sequential)
        logits = module(data.x_test) + own(module[:-1](data.x_test))
        correct = int((logits.argmax(1) == data.y_test).sum())
        assert trained.metrics["correct_personalized"][k] == correct


def test_equal_class_counts_reduce_balanced_loss_to_cross_entropy(
    make_learner: Callable[..., Learner],
) -> None:
    draws = torch.Generator().manual_seed(3)
    x = torch.rand(20, 1, 8, 8, generator=draws, dtype=torch.float64)
    data = ClientData(x, torch.arange(20) % 10, x[:4], torch.arange(4), 10)
    updates = []
    for personalizer in ("fedrod", "none"):
        learner = make_learner(personalizer=personalizer)
        received_KD = learner.initial_model()[None]
        batches = Batches.draw([20], ["a"], learner.training, SEED, ROUND)
        cohort = Cohort.of([data], torch.float64)
        assert cohort.counts_KC.tolist() == [[2] * 10]
        state = learner.personalizer.init(received_KD)
        updates.append(train(learner, cohort, batches, received_KD, state).update_KD)
    assert torch.allclose(*updates, rtol=0, atol=1e-12)


def test_initial_personal_head_leaves_the_generic_model_unchanged(
    make_learner: Callable[..., Learner],
) -> None:
    learner = make_learner(personalizer="fedrod")
    model_KD = learner.initial_model()[None]
    own_KD = learner.personalizer.personalized(model_KD, learner.personalizer.init(model_KD))
    assert own_KD is not None
    assert torch.equal(own_KD, model_KD)


def test_generic_biases_of_absent_classes_are_not_trained(plain: Callable[[object], Plain]) -> None:
    """The generic bias of an absent class never moves; every other one does."""
    one = plain("fedrod")
    update_KD = one.at_once().update_KD
    ((start, stop),) = [(a, b) for name, a, b in one.learner.spec.layout if name == "output.bias"]
    for k, data in enumerate(one.clients):
        held = torch.zeros(10, dtype=torch.bool)
        held[data.y_train] = True
        assert torch.equal(update_KD[k, start:stop] != 0, held)


def test_class_counts_ignore_padding_and_use_flipped_labels(clients: list[ClientData]) -> None:
    attack = LabelFlip()
    flipped = poisoned(clients[1], attack, seed=1, client="b", attacker=0)
    cohort = Cohort.of([clients[0], flipped, clients[2]], torch.float64)
    for k, data in enumerate([clients[0], flipped, clients[2]]):
        assert cohort.counts_KC[k].tolist() == [int((data.y_train == c).sum()) for c in range(10)]
    assert not torch.equal(flipped.y_train, clients[1].y_train)
    picked = cohort.pick([2, 0]).counts_KC
    assert torch.equal(picked, cohort.counts_KC[[2, 0]])


def test_balanced_loss_matches_hand_computed_biases(make_learner: Callable[..., Learner]) -> None:
    """Logits 0, three samples of class 0, one of class 1: only the personal biases move."""
    learner = make_learner(
        personalizer="fedrod",
        model={"name": "mlp", "hidden": []},
        training={"epochs": 1, "batch_size": 4, "learning_rate": 1.0},
    )
    x, y = torch.zeros(4, 1, 8, 8, dtype=torch.float64), torch.tensor([0, 0, 0, 1])
    cohort = Cohort.of([ClientData(x, y, x, y, 10)], torch.float64)
    received_KD = torch.zeros(1, learner.spec.dim, dtype=torch.float64)
    batches = Batches.draw([4], NAMES[:1], learner.training, SEED, ROUND)
    state = learner.personalizer.init(received_KD)
    trained = train(learner, cohort, batches, received_KD, state)
    assert torch.allclose(trained.update_KD, torch.zeros_like(received_KD), atol=1e-12)
    # The personal head learns the prior p = (3/4, 1/4), which the balanced loss already contains.
    bias = trained.personal["head"][0, :10]
    expected = torch.tensor([3 / 4 - 0.1, 1 / 4 - 0.1, *[-0.1] * 8], dtype=torch.float64)
    assert torch.allclose(bias, expected, rtol=0, atol=1e-12)
    assert math.isclose(float(bias.sum()), 0, abs_tol=1e-12)


@pytest.mark.parametrize(
    ("head", "message"), [("relu1", "is ReLU"), ("no", "not there"), ("hidden", "follows 'hidden'")]
)
def test_unsuitable_head_layers_are_rejected(
    make_learner: Callable[..., Learner], head: str, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make_learner(personalizer={"name": "fedrod", "head": head})


def test_fedrod_is_rejected_with_differential_privacy(
    make_learner: Callable[..., Learner],
) -> None:
    training = {"privacy": {"noise_multiplier": 1.0}}
    with pytest.raises(ConfigurationError, match="cannot account for the personalizer 'fedrod'"):
        make_learner(personalizer="fedrod", training=training)
