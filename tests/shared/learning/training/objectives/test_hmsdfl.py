"""HMSDFL: compared with plain torch and with linear models' closed form, and its tiers."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.data.client_data import ClientData
from rampart_fl.shared.learning.network import jacobian
from rampart_fl.shared.learning.network.jacobian import directions, measured_norm
from rampart_fl.shared.learning.network.stacked import Stacked
from rampart_fl.shared.learning.network.vector import load, spec_of
from rampart_fl.shared.learning.training import machine
from rampart_fl.shared.learning.training.cohort import Batches, Cohort
from rampart_fl.shared.learning.training.learner import Learner
from rampart_fl.shared.learning.training.local import train, train_round
from rampart_fl.shared.learning.training.objectives import objectives
from rampart_fl.shared.learning.training.objectives.hmsdfl import HMSDFL
from rampart_fl.shared.learning.training.personalizers import personalizers
from rampart_fl.shared.seeding import generator
from tests.shared.learning.conftest import make_experiment

MakeLearner = Callable[..., Learner]


def vector(module: nn.Module, tensors: dict[str, Tensor]) -> Tensor:
    return torch.cat([tensors[one.name].detach().flatten() for one in spec_of(module).tensors])


def plain_hmsdfl(
    learner: Learner, data: ClientData, received_D: Tensor, weight: float, projections: int
) -> Tensor:
    """Algorithm 2 on one client with torch.nn and torch.autograd: the trained model."""
    module = load(copy.deepcopy(learner.network.module), received_D)
    names, tensors = zip(*module.named_parameters(), strict=True)
    order, step = generator(5, "batches", "a", 3), 0
    for _ in range(learner.training.epochs):
        shuffled = torch.randperm(len(data.y_train), generator=order)
        for at in shuffled.split(learner.training.batch_size):
            logits = module(data.x_train[at])
            loss = functional.cross_entropy(logits, data.y_train[at])
            draws = generator(5, "hmsdfl", "a", 3, step)
            for _ in range(projections):
                q = directions(len(at), 10, draws)
                slopes = torch.autograd.grad((logits * q).sum(), tensors, create_graph=True)
                square = sum((slope.square().sum() for slope in slopes), torch.zeros(()))
                loss = loss + weight * 10 / (projections * len(at)) * square
            with torch.no_grad():
                for tensor, slope in zip(tensors, torch.autograd.grad(loss, tensors), strict=True):
                    tensor -= learner.training.learning_rate * slope
            step += 1
    return vector(module, dict(zip(names, tensors, strict=True)))


@pytest.mark.parametrize("projections", [1, 3])
def test_training_equals_the_papers_algorithm_in_plain_torch(
    make_learner: MakeLearner, clients: list[ClientData], projections: int
) -> None:
    term = {"name": "hmsdfl", "lambda": 0.01, "n_projections": projections}
    training = {"epochs": 2, "batch_size": 4, "objective": [term]}
    learner = make_learner(personalizer="none", training=training)
    received_D = learner.initial_model()
    result = train_round(learner, clients[0], received_D, {}, seed=5, client="a", round_=3)
    expected_D = plain_hmsdfl(learner, clients[0], received_D, 0.01, projections)
    assert torch.allclose(received_D + result.update_D, expected_D, rtol=0, atol=1e-12)
    assert result.metrics["jacobian_norm"] > 0


def linear_learner(weight: float, bias: bool = True) -> Learner:
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 10, bias=bias)).double()
    terms = (HMSDFL(**{"lambda": weight}),)
    return Learner(
        Stacked(module), personalizers.build("none"), make_experiment().training, terms=terms
    )


def test_training_of_a_linear_model_is_unchanged_bit_for_bit(clients: list[ClientData]) -> None:
    """The Jacobian of z = W x + b is constant, so the gradient of its norm is 0."""
    free, held = linear_learner(0.0), linear_learner(10.0)
    received_D = free.initial_model()
    names = {"seed": 1, "client": "a", "round_": 0}
    updates = [train_round(one, clients[0], received_D, {}, **names) for one in (free, held)]
    assert torch.equal(updates[0].update_D, updates[1].update_D)


@pytest.mark.parametrize("bias", [True, False])
def test_norm_of_a_linear_model_matches_its_closed_form(
    clients: list[ClientData], bias: bool
) -> None:
    """C (|x|² + 1) with a bias, C |x|² without: mean over samples and over many measurements."""
    learner = linear_learner(0.0, bias)
    names = [str(k) for k in range(60)]
    batches = Batches.draw([len(clients[1].y_train)] * 60, names, learner.training, 1, 0)
    cohort = Cohort.of([clients[1]] * 60, torch.float64)
    result = train(learner, cohort, batches, learner.initial_model().expand(60, -1), {})
    exact = 10 * (clients[1].x_train.flatten(1).square().sum(1).mean() + bias)
    measured = result.metrics["jacobian_norm"].mean()
    assert float(measured) == pytest.approx(float(exact), rel=0.1)


def test_norm_of_a_network_matches_its_full_jacobian(
    make_learner: MakeLearner, clients: list[ClientData]
) -> None:
    """Many random directions average to the norm of every sample's whole matrix ∂z/∂θ."""
    learner = make_learner(model={"name": "mlp", "hidden": [3]})
    model_D = learner.initial_model()

    def logits(at_D: Tensor, x: Tensor) -> Tensor:
        return learner.network.logits(at_D[None], x[None, None])[0, 0]

    squares = [
        torch.autograd.functional.jacobian(lambda at, x=x: logits(at, x), model_D).square().sum()
        for x in clients[1].x_train
    ]
    many, models_KD = Cohort.of([clients[1]] * 1500, torch.float64), model_D.expand(1500, -1)
    draws = [generator(7, str(k)) for k in range(1500)]
    found_K = measured_norm(learner.network, models_KD, many.x_train_KN, many.train_K, draws)
    expected = torch.stack(squares).mean()
    assert float(found_K.mean()) == pytest.approx(float(expected), rel=0.05)


def test_running_statistics_are_excluded_from_the_jacobian() -> None:
    network = Stacked(nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3)).double())
    end, draws = network.spec.trainable, torch.Generator().manual_seed(1)
    model_D = torch.rand(network.spec.dim, generator=draws, dtype=torch.float64) + 0.5
    x_B4 = torch.randn(2, 4, generator=draws, dtype=torch.float64)
    q_BC = directions(2, 3, draws)

    def projected(parameters: Tensor) -> Tensor:
        whole_D = torch.cat([parameters, model_D[end:]])
        return (network.logits(whole_D[None], x_B4[None])[0] * q_BC).sum()

    slope = torch.autograd.functional.jacobian(projected, model_D[:end])
    norm_K, gradient_KD = jacobian.squared_norm(
        network, model_D[None], x_B4[None], [2], lambda classes: [q_BC[None]]
    )
    assert end < network.spec.dim
    assert float(norm_K) == pytest.approx(float(3 / 2 * slope.square().sum()))
    step = 1e-6 * torch.eye(network.spec.dim, dtype=torch.float64)[0]
    above, below = (
        jacobian.squared_norm(network, at[None], x_B4[None], [2], lambda classes: [q_BC[None]])[0]
        for at in (model_D + step, model_D - step)
    )
    assert float(gradient_KD[0, 0]) == pytest.approx(float(above - below) / 2e-6, rel=1e-4)


def test_larger_weight_gives_smaller_jacobian_norm(
    make_learner: MakeLearner, clients: list[ClientData]
) -> None:
    norms = []
    for weight in (0.0, 0.01, 0.1):
        training = {"epochs": 20, "objective": {"name": "hmsdfl", "lambda": weight}}
        learner = make_learner(personalizer="none", training=training)
        received_D = learner.initial_model()
        result = train_round(learner, clients[0], received_D, {}, seed=5, client="a", round_=3)
        norms.append(result.metrics["jacobian_norm"])
    assert norms[0] > norms[1] > norms[2]


def test_measured_norm_does_not_depend_on_other_clients_or_chunk_size(
    make_learner: MakeLearner, clients: list[ClientData], monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = make_learner()
    models_KD = learner.initial_model() + 0.1 * torch.arange(3.0).double()[:, None]
    together = Cohort.of(clients, torch.float64)

    def measured(cohort: Cohort, models_KD: Tensor, names: list[str]) -> Tensor:
        draws = [generator(7, name) for name in names]
        network, sizes = learner.network, cohort.train_K
        return jacobian.measured_norm(network, models_KD, cohort.x_train_KN, sizes, draws)

    all_K = measured(together, models_KD, ["a", "b", "c"])
    monkeypatch.setattr(jacobian, "MEASURED", 9)  # Three samples of each model at once.
    assert torch.allclose(measured(together, models_KD, ["a", "b", "c"]), all_K)
    alone = Cohort.of(clients[1:2], torch.float64)
    assert torch.allclose(measured(alone, models_KD[1:2], ["b"]), all_K[1:2])


@pytest.mark.parametrize(
    ("resources", "count"),
    [(0.5, 0), (1, 1), (2, 1), (4, 3), (7.9, 9), (8, 10), (float("inf"), 10)],
)
def test_number_of_projections_depends_on_the_machines_resources(
    resources: float, count: int
) -> None:
    assert HMSDFL(tier="auto").projections(10, resources) == count


@pytest.mark.parametrize(("resources", "count"), [(1.5, 1), (4, 10)])
def test_minimum_tier_may_extend_to_the_high_tier(resources: float, count: int) -> None:
    terms = HMSDFL(tier="auto", low_resources=4.0, high_resources=4.0)
    assert terms.projections(10, resources) == count


def test_machine_below_the_minimum_trains_without_the_term(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "probe", lambda: 0.5)
    assert HMSDFL(tier="auto").weight == 0
    monkeypatch.setattr(machine, "probe", lambda: 1.0)
    assert HMSDFL(tier="auto").weight == 1e-4


def test_invalid_parameters_are_rejected() -> None:
    with pytest.raises(ConfigurationError, match=r"lambda.*greater than or equal to 0"):
        objectives.build("hmsdfl", **{"lambda": -1})
    with pytest.raises(ConfigurationError, match="tier"):
        objectives.build("hmsdfl", tier="gigantic")
    with pytest.raises(ConfigurationError, match=r"low_resources 9 is above high_resources 8"):
        objectives.build("hmsdfl", low_resources=9)
