"""The baselines of personalization, by what tells them apart."""

import torch

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.learning.data.client_data import ClientData
from rampart_fl.shared.learning.training.learner import Learner
from rampart_fl.shared.learning.training.local import LocalResult, train_round


def run(personalizer: object, received: float = 0.0) -> tuple[Learner, LocalResult, torch.Tensor]:
    experiment = Experiment.from_tables(
        {
            "name": "baseline",
            "data": {"dataset": "digits"},
            "model": {"name": "cnn", "channels": [2], "hidden": 4},
            "training": {"epochs": 1, "batch_size": 4},
            "personalizer": personalizer,
        }
    )
    learner = Learner.of(experiment)
    draws = torch.Generator().manual_seed(1)
    x, y = torch.rand(9, 1, 8, 8, generator=draws), torch.randint(10, (9,), generator=draws)
    initial_D = learner.initial_model()
    received_D = initial_D + received
    data = ClientData(x, y, x[:2], y[:2], 10)
    state = learner.first_state(initial_D)
    result = train_round(learner, data, received_D, state, seed=1, client="a", round_=0)
    return learner, result, received_D


def test_local_uploads_nothing_and_ignores_the_server() -> None:
    _, first, _ = run("local")
    _, other, _ = run("local", received=0.5)
    assert (first.update_D == 0).all()
    assert torch.equal(first.personal["model"], other.personal["model"])


def test_fine_tuning_keeps_what_it_uploads() -> None:
    _, result, received_D = run("fine_tune")
    _, plain, _ = run("none")
    assert torch.equal(result.update_D, plain.update_D)
    after_D = received_D + result.update_D
    assert torch.allclose(result.personal["model"], after_D, rtol=0, atol=1e-6)
    assert result.metrics["correct_personalized"] == result.metrics["correct_local"]


def test_ditto_without_pull_is_local_training_beside_plain_averaging() -> None:
    _, ditto, _ = run({"name": "ditto", "lambda": 0}, received=0.2)
    _, local, _ = run("local")
    _, plain, _ = run("none", received=0.2)
    assert torch.allclose(ditto.personal["model"], local.personal["model"], rtol=0, atol=1e-6)
    assert torch.allclose(ditto.update_D, plain.update_D, rtol=0, atol=1e-6)


def test_ditto_with_a_strong_pull_stays_at_the_global_model() -> None:
    """One step with η λ = 1 lands on the received model, less the gradient step."""
    _, far, received_D = run({"name": "ditto", "lambda": 100.0}, received=0.2)
    assert (far.personal["model"] - received_D).abs().max() < 0.05
