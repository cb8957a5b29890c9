"""Interpolated personalization over the network: extremes, a closed form, invalid lambdas."""

from typing import Any

import pytest
import torch

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.learning.training.personalizers import personalizers
from rampart_fl.shared.simulation import SimulationResult, simulate

CLIENTS = 5


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def run(personalizer: Any, **tables: Any) -> SimulationResult:
    return simulate(
        Experiment.from_tables(
            {
                "name": "shared",
                "rounds": 3,
                "data": {"dataset": "digits", "clients": CLIENTS, "samples": 20},
                "model": {"name": "mlp", "hidden": []},
                "training": {"epochs": 2, "batch_size": 4, "learning_rate": 0.05},
                "personalizer": personalizer,
                **tables,
            }
        )
    )


def table(share: float) -> dict[str, Any]:
    return {"name": "interpolated", "lambda": share}


def test_lambda_0_equals_local_training() -> None:
    own, alone = run(table(0)), run("local")
    for client, tensors in own.personal.items():
        assert torch.allclose(tensors["trained"], alone.personal[client]["model"], atol=1e-6)


def test_lambda_1_equals_the_global_model() -> None:
    together, plain = run(table(1)), run("none")
    assert torch.allclose(together.global_D, plain.global_D, atol=1e-5)
    for tensors in together.personal.values():
        assert torch.allclose(tensors["model"], tensors["seen"], atol=1e-6)


def test_mean_estimation_matches_its_closed_form() -> None:
    """From a common start, θ_i(T) = ȳ_i + (1-η)^T (θ_0 - ȳ) + (1-η(1-λ))^T (ȳ - ȳ_i)."""
    means = {"name": "synthetic_means", "clients": CLIENTS, "samples": 6, "dimension": 2}
    share, rate, rounds = 0.6, 0.3, 4
    result = run(
        table(share),
        rounds=rounds,
        data={"dataset": means, "partition": "by_group", "clients": CLIENTS},
        model="mean",
        training={"epochs": 1, "batch_size": 6, "learning_rate": rate},
    )
    learned = personalizers.parse(table(share))
    for client, tensors in result.personal.items():
        own = {name: tensor.unsqueeze(0) for name, tensor in tensors.items()}
        theta_D = learned.personalized(result.global_D.unsqueeze(0), own)
        assert theta_D is not None
        slot = int(client[-2:])
        ybar_KD = torch.stack([data.x_train.mean(0) for data in _data(result.experiment)])
        common_D = ybar_KD.mean(0)
        expected_D = ybar_KD[slot] - (1 - rate) ** rounds * common_D
        expected_D += (1 - rate * (1 - share)) ** rounds * (common_D - ybar_KD[slot])
        assert torch.allclose(theta_D[0], expected_D, atol=1e-4)


def _data(experiment: Experiment) -> list[Any]:
    from rampart_fl.shared.learning.data.client_data import client_data

    return [client_data(experiment.data, slot, experiment.seed) for slot in range(CLIENTS)]


@pytest.mark.parametrize("share", [-0.1, 1.1, "best"])
def test_lambda_outside_0_to_1_is_rejected(share: Any) -> None:
    with pytest.raises(ConfigurationError, match="lambda"):
        personalizers.parse(table(share))


def test_lambda_by_formula_requires_the_exact_mode() -> None:
    with pytest.raises(ConfigurationError, match="exact"):
        personalizers.parse({"name": "interpolated", "lambda": "formula"})
