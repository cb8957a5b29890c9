"""The contract of all objectives.

Batched training of all clients equals sequential training, padding has no effect, and arguments
are not modified. A weight of 0 changes no bit, and attackers train without objectives.
"""

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
import torch

from rampart_fl.shared.learning.training.cohort import Batches, Cohort, StepRandomness
from rampart_fl.shared.learning.training.learner import Learner
from rampart_fl.shared.learning.training.local import CohortResult, train, train_round
from rampart_fl.shared.learning.training.objectives import Objective, Point, objectives
from rampart_fl.shared.learning.training.personalizers import Batch
from tests.contracts import unequal_clients
from tests.contracts.unequal_clients import NAMES, SIZES, clients, received


@dataclass(frozen=True)
class Case:
    """A member with parameters."""

    name: str
    parameters: dict[str, Any] = field(default_factory=dict)

    def term(self, weight: float = 0.05, **more: Any) -> dict[str, Any]:
        """The member as an experiment names it."""
        key = objectives.get(self.name).weight_name
        return {"name": self.name, **self.parameters, key: weight, **more}

    def __str__(self) -> str:
        return "-".join(map(str, [self.name, *self.parameters.values()]))


CASES = {
    "msdfl": [Case("msdfl", {"form": form}) for form in ("per_sample", "batch_sum")],
    "hmsdfl": [Case("hmsdfl", {"n_projections": n}) for n in (1, 3)],
    "tiers": [Case("tiers", {"shares": shares}) for shares in ((0.3, 0.3, 0.4), (0, 0, 1))],
}
ALL = [case for name in objectives.names() for case in CASES.get(name, [Case(name)])]


@pytest.fixture(
    params=ALL, ids=lambda case: " ".join(map(str, [case.name, *case.parameters.values()]))
)
def case(request: pytest.FixtureRequest) -> Case:
    """Every objective, with its parameters."""
    path: Case = request.param
    return path


def learner_of(terms: Any, personalizer: str = "none") -> Learner:
    return unequal_clients.learner_of(personalizer, objective=terms, epochs=1, batch_size=3)


def run(learner: Learner, **options: Any) -> CohortResult:
    received_KD = received(learner)
    batches = Batches.draw(SIZES, NAMES, learner.training, seed=5, round_=3)
    personal = learner.personalizer.init(received_KD.flip(0))
    cohort = Cohort.of(clients(), torch.float64)
    return train(learner, cohort, batches, received_KD, personal, **options)


@cache
def plain(personalizer: str = "none") -> CohortResult:
    """What training without objectives gives."""
    return run(learner_of([], personalizer))


@pytest.mark.parametrize("personalizer", ["none", "fedcap"])
def test_batched_training_equals_sequential_training(case: Case, personalizer: str) -> None:
    learner = learner_of([case.term(personal=True)], personalizer)
    together, received_KD = run(learner), received(learner)
    without = plain(personalizer)
    for k, (name, data) in enumerate(zip(NAMES, clients(), strict=True)):
        own = {key: t[k] for key, t in learner.personalizer.init(received_KD.flip(0)).items()}
        alone = train_round(learner, data, received_KD[k], own, seed=5, client=name, round_=3)
        assert torch.allclose(alone.update_D, together.update_KD[k], rtol=0, atol=1e-9)
        assert not torch.equal(without.update_KD[k], together.update_KD[k])
        for key, tensor in alone.personal.items():
            assert torch.allclose(tensor, together.personal[key][k], rtol=0, atol=1e-9)
            assert not torch.equal(without.personal[key][k], together.personal[key][k])


def test_objective_of_weight_zero_changes_no_bit(case: Case) -> None:
    without, zero = plain("fedcap"), run(learner_of([case.term(0.0)], "fedcap"))
    assert torch.equal(without.update_KD, zero.update_KD)
    assert torch.equal(without.personal["model"], zero.personal["model"])


def test_weights_of_repeated_terms_add_up(case: Case) -> None:
    whole = run(learner_of([case.term(0.06)]))
    parts = run(learner_of([case.term(0.02), case.term(0.04)]))
    assert torch.allclose(whole.update_KD, parts.update_KD, rtol=0, atol=1e-12)


def test_attackers_train_without_objectives(case: Case) -> None:
    held = run(learner_of([case.term()]))
    mixed = run(learner_of([case.term()]), hostile=[1])
    assert torch.equal(mixed.update_KD[1], plain().update_KD[1])
    assert torch.equal(mixed.update_KD[[0, 2]], held.update_KD[[0, 2]])


def at(learner: Learner, padding: float, dtype: torch.dtype = torch.float64) -> Point:
    """Three clients with three, two and no samples in a batch of three, padded with a value."""
    draws = torch.Generator().manual_seed(4)
    x_KB = torch.rand(3, 3, 1, 8, 8, generator=draws, dtype=torch.float64)
    y_KB = torch.randint(10, (3, 3), generator=draws)
    weight_KB = torch.tensor([[1 / 3] * 3, [1 / 2, 1 / 2, 0], [0.0] * 3])
    x_KB[weight_KB == 0] = padding
    received_KD = received(learner).to(dtype)
    batch = Batch(x_KB.to(dtype), y_KB, weight_KB.to(dtype))
    draws = StepRandomness(seed=5, names=tuple(NAMES), round=3, step=0, sizes=(3, 2, 0))
    return Point(learner.network, received_KD + 0.1, received_KD, batch, draws)


def build(case: Case) -> Objective:
    return objectives.parse(case.term())


def test_objective_has_the_given_or_a_positive_default_weight(case: Case) -> None:
    assert objectives.parse(case.term(0.25)).weight == 0.25
    assert objectives.parse(case.name).weight > 0
    assert objectives.get(case.name).paper


def test_padding_does_not_change_the_gradient(case: Case) -> None:
    learner = learner_of([])
    gradients = [build(case).gradient(at(learner, padding)) for padding in (0.0, 0.7)]
    assert torch.allclose(gradients[0], gradients[1], rtol=0, atol=1e-12)
    assert bool(gradients[0].isfinite().all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_gradient_is_a_new_tensor_and_inputs_are_not_modified(
    case: Case, dtype: torch.dtype
) -> None:
    learner = learner_of([])
    learner.network.module.to(dtype)
    point = at(learner, 0.0, dtype)
    inputs = (point.models_KD, point.received_KD, point.batch.x_KB, point.batch.weight_KB)
    before = [tensor.clone() for tensor in inputs]
    gradient_KD = build(case).gradient(point)
    assert gradient_KD.shape == point.models_KD.shape
    assert gradient_KD.dtype == dtype
    assert not gradient_KD.requires_grad
    gradient_KD.zero_()
    assert all(torch.equal(old, new) for old, new in zip(before, inputs, strict=True))


def test_equal_points_give_bitwise_equal_gradients(case: Case) -> None:
    learner = learner_of([])
    first, again = (build(case).gradient(at(learner, 0.0)) for _ in range(2))
    assert torch.equal(first, again)


def test_model_with_nan_does_not_affect_gradients_of_other_clients(case: Case) -> None:
    learner = learner_of([])
    calm, wild = at(learner, 0.0), at(learner, 0.0)
    wild.models_KD[1] = float("nan")
    calm_KD, wild_KD = build(case).gradient(calm), build(case).gradient(wild)
    assert torch.equal(calm_KD[[0, 2]], wild_KD[[0, 2]])
