"""FedProx: its gradient, and the models to which it applies."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.data.client_data import ClientData
from rampart_fl.shared.learning.training.learner import Learner
from rampart_fl.shared.learning.training.local import train_round
from rampart_fl.shared.learning.training.objectives import objectives

MakeLearner = Callable[..., Learner]


def after(
    make_learner: MakeLearner, data: ClientData, terms: Any, personalizer: Any
) -> tuple[Tensor, Mapping[str, Tensor]]:
    """The update and the personal state of a round with these terms."""
    training = {"epochs": 2, "batch_size": 4, "learning_rate": 0.1, "objective": terms}
    learner = make_learner(training=training, personalizer=personalizer)
    received_D = learner.initial_model()
    draws = torch.Generator().manual_seed(3)
    personal = {
        name: tensor + 0.1 * torch.randn(tensor.shape, generator=draws, dtype=torch.float64)
        for name, tensor in learner.first_state(received_D).items()
    }
    result = train_round(learner, data, received_D, personal, seed=1, client="a", round_=0)
    return result.update_D, result.personal


def test_second_step_adds_the_proximal_gradient(
    make_learner: MakeLearner, clients: list[ClientData]
) -> None:
    """Relative to w^t, w1 = -η g0; the second step subtracts η μ w1 in addition to its gradient."""
    data = clients[2]  # Four samples: one step per epoch.
    training = {"epochs": 2, "batch_size": 4, "learning_rate": 0.1}
    plain = make_learner(personalizer="none", training=training)
    held = make_learner(personalizer="none", training={**training, "objective": ["fedprox"]})
    once = make_learner(personalizer="none", training={**training, "epochs": 1})
    received_D = plain.initial_model()
    names = {"seed": 1, "client": "a", "round_": 0}
    first_D, free_D, held_D = (
        train_round(one, data, received_D, {}, **names).update_D for one in (once, plain, held)
    )
    assert torch.allclose(held_D, free_D - 0.1 * 0.01 * first_D, rtol=0, atol=1e-15)


def test_larger_mu_gives_shorter_updates(
    make_learner: MakeLearner, clients: list[ClientData]
) -> None:
    lengths = [
        after(make_learner, clients[0], {"name": "fedprox", "mu": mu}, "none")[0].norm()
        for mu in (0.0, 1.0, 5.0)
    ]
    assert lengths[0] > lengths[1] > lengths[2] > 0


@pytest.mark.parametrize("personalizer", ["none", "fine_tune", "local", "fedcap"])
def test_mu_of_zero_equals_plain_training_bit_for_bit(
    make_learner: MakeLearner, clients: list[ClientData], personalizer: str
) -> None:
    plain_D, plain = after(make_learner, clients[0], "plain", personalizer)
    terms = {"name": "fedprox", "mu": 0, "personal": True}
    zero_D, zero = after(make_learner, clients[0], terms, personalizer)
    assert torch.equal(plain_D, zero_D)
    assert all(torch.equal(plain[name], zero[name]) for name in plain)


def test_personal_models_have_no_proximal_term_unless_configured(
    make_learner: MakeLearner, clients: list[ClientData]
) -> None:
    ditto = {"name": "ditto", "lambda": 0.3}
    plain_D, plain = after(make_learner, clients[0], [], ditto)
    terms = {"name": "fedprox", "mu": 0.2}
    upload_D, own = after(make_learner, clients[0], terms, ditto)
    assert torch.equal(own["model"], plain["model"])
    assert not torch.equal(upload_D, plain_D)
    both_D, both = after(make_learner, clients[0], {**terms, "personal": True}, ditto)
    assert torch.equal(both_D, upload_D)
    # Both pull v towards the received model: μ adds to λ.
    _, stronger = after(make_learner, clients[0], [], {"name": "ditto", "lambda": 0.5})
    assert torch.allclose(both["model"], stronger["model"], rtol=0, atol=1e-12)


def test_model_that_is_never_exchanged_has_no_proximal_term(
    make_learner: MakeLearner, clients: list[ClientData]
) -> None:
    _, plain = after(make_learner, clients[0], [], "local")
    _, held = after(make_learner, clients[0], {"name": "fedprox", "mu": 1}, "local")
    assert torch.equal(plain["model"], held["model"])


def test_negative_mu_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match=r"mu.*greater than or equal to 0"):
        objectives.build("fedprox", mu=-1)
