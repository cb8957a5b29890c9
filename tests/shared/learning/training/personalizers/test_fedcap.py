"""FedCAP's personal model: its fixed point, and the pull of lambda to the received model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.training.personalizers import Batch, StepState, personalizers


@dataclass(frozen=True)
class Quadratic:
    """A task with loss a/2 |w - c|²."""

    a: float
    c: float
    learning_rate: float = 0.1

    def gradients(
        self, batch: Batch, *models_KD: Tensor, personal: Sequence[Tensor] = ()
    ) -> tuple[Tensor, ...]:
        return tuple(self.a * (model_KD - self.c) for model_KD in (*models_KD, *personal))

    def descend(self, local: StepState, gradient_KD: Tensor) -> StepState:
        return replace(local, model_KD=local.model_KD - self.learning_rate * gradient_KD)

    def parameters(self, vector_KD: Tensor) -> Tensor:
        return vector_KD


NOTHING = Batch(torch.zeros(1, 1, 1), torch.zeros(1, 1), torch.ones(1, 1))


def run(
    parameters: Mapping[str, float], received: float, steps: int, name: str = "fedcap"
) -> tuple[float, float]:
    member = personalizers.build(name, **parameters)
    received_KD = torch.full((1, 1), received, dtype=torch.float64)
    local = StepState(received_KD, member.init(torch.zeros_like(received_KD)))
    for _ in range(steps):
        local = member.step(local, received_KD, NOTHING, Quadratic(a=2.0, c=3.0))
    kept_KD = member.personalized(local.model_KD, local.personal)
    assert kept_KD is not None
    return kept_KD.item(), local.model_KD.item()


@pytest.mark.parametrize("name", ["fedcap", "ditto"])
@pytest.mark.parametrize("pull", [0.0, 0.1, 1.0, 4.0])
def test_fixed_point_lies_between_local_optimum_and_received_model(name: str, pull: float) -> None:
    own, uploaded = run({"lambda": pull}, received=1.0, steps=400, name=name)
    assert own == pytest.approx((2.0 * 3.0 + pull * 1.0) / (2.0 + pull))
    assert uploaded == pytest.approx(3.0)


def test_one_step_matches_hand_computed_values() -> None:
    """v = 0 - 0.1 (2 (0 - 3) + 0.5 (0 - 1)) and w = 1 - 0.1 · 2 (1 - 3)."""
    assert run({"lambda": 0.5}, received=1.0, steps=1) == pytest.approx((0.65, 1.4))


def test_lambda_0_makes_the_personal_model_independent_of_the_server() -> None:
    assert run({"lambda": 0.0}, 1.0, 7)[0] == run({"lambda": 0.0}, -50.0, 7)[0]


def test_negative_lambda_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match=r"lambda.*greater than or equal to 0"):
        personalizers.build("fedcap", **{"lambda": -1})
