"""Local differential privacy: per-sample clipping, the noise, and the spent budget."""

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from rampart_fl.shared.agent.agent_settings import AgentSettings
from rampart_fl.shared.agent.host import check_capabilities
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment.schema import Experiment, Privacy, Training
from rampart_fl.shared.learning.data.client_data import ClientData
from rampart_fl.shared.learning.network.vector import load, spec_of
from rampart_fl.shared.learning.training.cohort import Batches, Cohort
from rampart_fl.shared.learning.training.learner import Learner
from rampart_fl.shared.learning.training.local import CohortResult, train, train_round
from rampart_fl.shared.learning.training.objectives import Point
from rampart_fl.shared.learning.training.personalizers import Batch
from rampart_fl.shared.learning.training.personalizers.fedfomo import FedFomo
from rampart_fl.shared.learning.training.privacy import (
    STEPS,
    check_privacy,
    epsilon,
    require_accountable,
)
from rampart_fl.shared.simulation import simulate

pytestmark = pytest.mark.skipif(
    find_spec("opacus") is None, reason="the privacy accountant is an optional extra"
)

MakeLearner = Callable[..., Learner]
NAMES = ["a", "b", "c"]
SILENT = 1e-12


def private(make_learner: MakeLearner, **table: Any) -> Learner:
    """A learner whose gradients are clipped and noised."""
    settings: dict[str, Any] = {"clip": 0.5, "noise_multiplier": SILENT, **table}
    training = {"epochs": 2, "batch_size": 4, "learning_rate": 0.1, "privacy": settings}
    training |= {"objective": settings.pop("objective", [])}
    return make_learner(personalizer=settings.pop("personalizer", "none"), training=training)


def run(
    learner: Learner, clients: list[ClientData], **options: Any
) -> tuple[CohortResult, Batches]:
    received_KD = learner.initial_model().repeat(3, 1)
    cohort = Cohort.of(clients, torch.float64)
    batches = Batches.draw(cohort.train_K, NAMES, learner.training, seed=5, round_=3)
    states = learner.first_states(received_KD)
    return train(learner, cohort, batches, received_KD, states, **options), batches


def by_hand(learner: Learner, data: ClientData, own: list[Tensor], clip: float) -> Tensor:
    """The update of DP-SGD without noise, computed sample by sample with torch.nn."""
    module = copy.deepcopy(learner.network.module)
    start_D = learner.initial_model()
    expected = min(4, len(data.y_train))
    for batch in own:
        total = torch.zeros_like(start_D)
        for at in batch:
            module.zero_grad()
            loss = functional.cross_entropy(module(data.x_train[at, None]), data.y_train[at, None])
            loss.backward()
            tensors = dict(module.named_parameters())
            parts = [tensors[one.name].grad for one in spec_of(module).tensors]
            gradient = torch.cat([part.flatten() for part in parts if part is not None])
            total += gradient * min(1.0, clip / float(gradient.norm()))
        tensors = dict(module.named_parameters())
        flat = torch.cat([tensors[one.name].detach().flatten() for one in spec_of(module).tensors])
        load(module, flat - 0.1 * total / expected)
    tensors = dict(module.named_parameters())
    end_D = torch.cat([tensors[one.name].detach().flatten() for one in spec_of(module).tensors])
    return end_D - start_D


@pytest.mark.parametrize("clip", [0.5, 100.0])
def test_round_equals_sequential_per_sample_clipping(
    make_learner: MakeLearner, clients: list[ClientData], clip: float
) -> None:
    learner = private(make_learner, clip=clip)
    trained, batches = run(learner, clients)
    for k, data in enumerate(clients):
        own = [
            batches.index_KSB[k, s][batches.weight_KSB[k, s] > 0] for s in range(batches.steps_K[k])
        ]
        expected_D = by_hand(learner, data, own, clip)
        assert torch.allclose(trained.update_KD[k], expected_D, rtol=0, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("personalizer", ["none", "fedcap", "fine_tune"])
def test_batched_private_training_equals_sequential_training(
    make_learner: MakeLearner, clients: list[ClientData], personalizer: str
) -> None:
    terms = ["fedprox", {"name": "hmsdfl", "lambda": 0.01}, {"name": "msdfl", "lambda": 0.1}]
    learner = private(
        make_learner, noise_multiplier=0.7, objective=terms, personalizer=personalizer
    )
    together, _ = run(learner, clients)
    received_D = learner.initial_model()
    for k, (name, data) in enumerate(zip(NAMES, clients, strict=True)):
        state = learner.first_state(received_D)
        alone = train_round(learner, data, received_D, state, seed=5, client=name, round_=3)
        assert torch.allclose(alone.update_D, together.update_KD[k], rtol=0, atol=1e-9)
        assert alone.metrics["epsilon"] == together.metrics["epsilon"][k]
        for key, tensor in alone.personal.items():
            assert torch.allclose(tensor, together.personal[key][k], rtol=0, atol=1e-9)


def test_data_independent_regularizer_gradient_is_not_clipped(
    make_learner: MakeLearner, clients: list[ClientData]
) -> None:
    """The loss gradient is clipped to almost nothing; FedProx's gradient remains whole."""
    learner = private(make_learner, clip=1e-9, objective={"name": "fedprox", "mu": 1.0})
    cohort = Cohort.of(clients, torch.float64)
    received_KD = learner.initial_model().repeat(3, 1)
    batches = Batches.draw(cohort.train_K, NAMES, learner.training, seed=5, round_=3)
    task = learner.task(cohort, batches, received_KD, 0)
    batch = Batch(
        cohort.x_train_KN[:, :4], cohort.y_train_KN[:, :4], torch.full((3, 4), 0.25).double()
    )
    (gradient_KD,) = task.gradients(batch, received_KD + 2)
    assert torch.allclose(gradient_KD, torch.full_like(gradient_KD, 2.0), atol=1e-8)
    point = Point(learner.network, received_KD + 2, received_KD, batch, task.draws)
    assert torch.equal(learner.terms[0].gradient(point), torch.full_like(received_KD, 2.0))


def test_noise_has_the_expected_deviation_and_is_independent_per_client(
    make_learner: MakeLearner, clients: list[ClientData]
) -> None:
    """η σ C / b sqrt(T) per coordinate after T steps."""
    quiet, loud = (private(make_learner, noise_multiplier=s) for s in (SILENT, 50.0))
    still, _ = run(quiet, clients)
    noisy, batches = run(replace(loud, network=quiet.network), clients)
    for k, size in enumerate((4, 4, 4)):
        deviation = (noisy.update_KD[k] - still.update_KD[k]).std()
        expected = 0.1 * 50 * 0.5 / size * math.sqrt(batches.steps_K[k])
        assert float(deviation) == pytest.approx(expected, rel=0.15)
    correlation = torch.corrcoef(noisy.update_KD - still.update_KD)
    assert float((correlation - torch.eye(3)).abs().max()) < 0.2


def test_secret_seed_determines_noise_and_batches(
    make_learner: MakeLearner, clients: list[ClientData]
) -> None:
    learner = private(make_learner, noise_multiplier=1.0)
    received_D = learner.initial_model()

    def update(secret: int | None) -> Tensor:
        state = learner.first_state(received_D)
        names: dict[str, Any] = {"seed": 5, "client": "a", "round_": 3, "secret": secret}
        return train_round(learner, clients[0], received_D, state, **names).update_D

    assert torch.equal(update(8), update(8))
    assert not torch.equal(update(8), update(9))
    assert not torch.equal(update(8), update(None))


def test_attackers_do_not_add_noise(make_learner: MakeLearner, clients: list[ClientData]) -> None:
    silent = private(make_learner, clip=1e6)
    loud = private(make_learner, clip=1e6, noise_multiplier=1.0)
    exact, _ = run(silent, clients)
    mixed, _ = run(loud, clients, hostile=[1])
    assert torch.allclose(mixed.update_KD[1], exact.update_KD[1], rtol=0, atol=1e-6)
    assert not torch.allclose(mixed.update_KD[0], exact.update_KD[0], rtol=0, atol=1e-2)
    alone, _ = run(loud.as_attacker(), clients)
    assert torch.equal(alone.update_KD[1], mixed.update_KD[1])


def test_personal_models_that_are_not_uploaded_are_trained_without_noise(
    make_learner: MakeLearner, clients: list[ClientData]
) -> None:
    silent = private(make_learner, personalizer="fedcap")
    loud = private(make_learner, personalizer="fedcap", noise_multiplier=1.0)
    assert torch.equal(
        run(silent, clients)[0].personal["model"], run(loud, clients)[0].personal["model"]
    )


def test_spent_epsilon_accumulates_over_rounds(
    make_learner: MakeLearner, clients: list[ClientData]
) -> None:
    learner = private(make_learner, noise_multiplier=1.0)
    received_D = learner.initial_model()
    state, results = learner.first_state(received_D), []
    for round_ in range(3):
        names: dict[str, Any] = {"seed": 5, "client": "a", "round_": round_}
        result = train_round(learner, clients[0], received_D, state, **names)
        state = result.personal
        results.append(result.metrics["epsilon"])
    assert float(state[STEPS]) == 18  # Two epochs of three steps in each of three rounds.
    assert results == [epsilon(0.4, 1.0, steps, 1e-5) for steps in (6, 12, 18)]
    assert results[0] < results[1] < results[2]


def exact_gaussian(sigma: float, delta: float) -> float:
    """The smallest ε of one Gaussian mechanism of sensitivity 1 (Balle and Wang, 2018)."""

    def cdf(t: float) -> float:
        return 0.5 * math.erfc(-t / math.sqrt(2))

    def reached(eps: float) -> float:
        shift, half = eps * sigma, 1 / (2 * sigma)
        return cdf(half - shift) - math.exp(eps) * cdf(-half - shift)

    low, high = 0.0, 100.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if reached(middle) > delta else (low, middle)
    return high


@pytest.mark.parametrize(("sigma", "steps"), [(5.0, 1), (20.0, 16), (10.0, 50)])
def test_epsilon_without_subsampling_tightly_bounds_the_exact_value(
    sigma: float, steps: int
) -> None:
    exact = exact_gaussian(sigma / math.sqrt(steps), 1e-5)
    assert exact <= epsilon(1.0, sigma, steps, 1e-5) <= 1.2 * exact


def integer_orders(rate: float, sigma: float, steps: int, delta: float) -> float:
    """The moments of the subsampled Gaussian at integer orders, ε by the classic conversion."""

    def moment(order: int) -> float:
        return math.log(
            sum(
                math.comb(order, k)
                * (1 - rate) ** (order - k)
                * rate**k
                * math.exp((k * k - k) / (2 * sigma**2))
                for k in range(order + 1)
            )
        ) / (order - 1)

    return min(steps * moment(a) + math.log(1 / delta) / (a - 1) for a in range(2, 40))


def test_epsilon_agrees_with_a_published_value() -> None:
    """TensorFlow Privacy's tutorial: 60,000 samples, batches of 250, σ 1.3, 15 epochs: ε 1.18.

    The tutorial uses the classic conversion to (ε, δ); the accountant's is tighter.
    """
    classic = integer_orders(250 / 60_000, 1.3, 3600, 1e-5)
    assert classic == pytest.approx(1.18, abs=0.005)
    assert 0.75 * classic < epsilon(250 / 60_000, 1.3, 3600, 1e-5) < classic


def test_no_epsilon_is_spent_before_the_first_step() -> None:
    assert epsilon(0.1, 1.0, 0, 1e-5) == 0


def test_output_noise_has_the_set_deviation_and_spares_personal_state(
    make_learner: MakeLearner, clients: list[ClientData]
) -> None:
    training = {"epochs": 1, "batch_size": 4}
    still, _ = run(make_learner(training=training), clients)
    noisy, _ = run(make_learner(training={**training, "output_noise": 0.3}), clients, hostile=[2])
    difference_KD = noisy.update_KD - still.update_KD
    assert float(difference_KD[0].std()) == pytest.approx(0.3, rel=0.15)
    assert not torch.equal(difference_KD[0], difference_KD[1])
    assert not difference_KD[2].any()
    assert torch.equal(noisy.personal["model"], still.personal["model"])
    assert "epsilon" not in noisy.metrics


def test_batch_normalization_and_missing_opacus_are_rejected(
    make_learner: MakeLearner, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Training(privacy={"clip": 1.0}).privacy
    with pytest.raises(ConfigurationError, match="batch normalization mixes samples"):
        check_privacy(table, nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    monkeypatch.setattr("rampart_fl.shared.learning.training.privacy.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"pip install 'rampart-fl\[privacy\]'"):
        private(make_learner)
    tables = {**Experiment.load("digits-benign").tables(), "training": {"privacy": {"clip": 1.0}}}
    with pytest.raises(ConfigurationError, match="needs Opacus"):
        check_capabilities(AgentSettings())(Experiment.from_tables(tables))
    check_privacy(None, nn.BatchNorm1d(2))


def test_simulated_clients_report_their_spent_epsilon() -> None:
    """Four clients, half of them per round, over three rounds; newcomers' probes count."""
    tables = {
        "name": "private",
        "rounds": 3,
        "fraction": 0.5,
        "data": {"dataset": "digits", "clients": 4},
        "model": {"name": "mlp", "hidden": [4]},
        "training": {"epochs": 1, "batch_size": 50, "privacy": {"noise_multiplier": 2.0}},
        "server": {"customizer": "fedcap"},
    }
    result = simulate(Experiment.from_tables(tables))
    spent_by: dict[str, list[float]] = {}
    for record in result.records:
        for client, metrics in record.metrics.items():
            spent_by.setdefault(client, []).append(metrics["epsilon"])
    assert all(values == sorted(values) for values in spent_by.values())
    for client, state in result.personal.items():
        taken = sum(client in r.metrics for r in result.records)
        probed = sum(client in r.probed for r in result.records)
        assert probed + taken > 0 or float(state[STEPS]) == 0
        steps = 7  # 337 samples in batches of 50.
        assert float(state[STEPS]) == steps * (taken + probed)
    assert any(record.probed for record in result.records)


def test_a_method_that_holds_samples_out_is_rejected_even_if_it_claims_to_be_accounted() -> None:
    class Claiming(FedFomo):
        accounted = True

    with pytest.raises(ConfigurationError, match="cannot account for the personalizer"):
        require_accountable(Privacy(noise_multiplier=1.0), nn.Linear(2, 2), Claiming())
