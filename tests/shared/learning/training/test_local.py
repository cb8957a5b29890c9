"""Local training: the stacked form against a plain loop, and what a client reports."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.schema import Training
from rampart_fl.shared.learning.data.client_data import ClientData
from rampart_fl.shared.learning.network.stacked import Stacked
from rampart_fl.shared.learning.network.vector import load
from rampart_fl.shared.learning.training import local
from rampart_fl.shared.learning.training.cohort import Batches, Cohort
from rampart_fl.shared.learning.training.learner import Learner
from rampart_fl.shared.learning.training.local import (
    TILE,
    evaluate,
    evaluate_many,
    train,
    train_round,
)
from rampart_fl.shared.seeding import generator

MakeLearner = Callable[..., Learner]
NAMES = ["a", "b", "c"]


def plain_fedcap(
    learner: Learner, data: ClientData, received_D: Tensor, own_D: Tensor, name: str, rate: float
) -> tuple[Tensor, Tensor]:
    """Equation 7 with torch.nn and torch.autograd on one client, batch by batch: (w, v)."""
    import copy

    def vector(module: nn.Module) -> Tensor:
        tensors = dict(module.named_parameters())
        return torch.cat([tensors[one.name].detach().flatten() for one in learner.spec.tensors])

    def gradient(model_D: Tensor, at: Tensor) -> Tensor:
        module = load(copy.deepcopy(learner.network.module), model_D)
        functional.cross_entropy(module(data.x_train[at]), data.y_train[at]).backward()
        for parameter in module.parameters():
            assert parameter.grad is not None
            parameter.data = parameter.grad
        return vector(module)

    draws = generator(5, "batches", name, 3)
    w_D, v_D = received_D.clone(), own_D.clone()
    for _ in range(learner.training.epochs):
        order = torch.randperm(len(data.y_train), generator=draws)
        for start in range(0, len(order), learner.training.batch_size):
            at = order[start : start + learner.training.batch_size]
            v_D = v_D - rate * (gradient(v_D, at) + 0.3 * (v_D - received_D))
            w_D = w_D - rate * gradient(w_D, at)
    return w_D, v_D


def start(learner: Learner, k: int = 3) -> tuple[Tensor, dict[str, Tensor]]:
    draws = torch.Generator().manual_seed(8)
    noise_KD = torch.randn(k, learner.spec.dim, generator=draws, dtype=torch.float64)
    received_KD = learner.initial_model() + 0.1 * noise_KD
    personal = learner.personalizer.init(received_KD.flip(0))
    return received_KD, personal


def test_batched_training_equals_a_plain_loop_over_clients(
    make_learner: MakeLearner, clients: list[ClientData]
) -> None:
    learner = make_learner()
    received_KD, personal = start(learner)
    cohort = Cohort.of(clients, torch.float64)
    batches = Batches.draw(cohort.train_K, NAMES, learner.training, seed=5, round_=3)
    trained = train(learner, cohort, batches, received_KD, personal)
    for k, (name, data) in enumerate(zip(NAMES, clients, strict=True)):
        w_D, v_D = plain_fedcap(
            learner,
            data,
            received_KD[k],
            personal["model"][k],
            name,
            learner.training.learning_rate,
        )
        assert torch.allclose(received_KD[k] + trained.update_KD[k], w_D, rtol=0, atol=1e-9)
        assert torch.allclose(trained.personal["model"][k], v_D, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5)], ids=str
)
def test_agent_and_simulator_compute_the_same_round(
    make_learner: MakeLearner, clients: list[ClientData], dtype: torch.dtype, tolerance: float
) -> None:
    learner = make_learner()
    received_KD, personal = start(learner)
    received_KD, personal = received_KD.to(dtype), {k: t.to(dtype) for k, t in personal.items()}
    cohort = Cohort.of(clients, dtype)
    batches = Batches.draw(cohort.train_K, NAMES, learner.training, seed=5, round_=3)
    trained = train(learner, cohort, batches, received_KD, personal)
    for k, (name, data) in enumerate(zip(NAMES, clients, strict=True)):
        own = {key: tensor[k] for key, tensor in personal.items()}
        alone = train_round(learner, data, received_KD[k], own, seed=5, client=name, round_=3)
        assert torch.allclose(alone.update_D, trained.update_KD[k], rtol=0, atol=tolerance)
        assert torch.allclose(
            alone.personal["model"], trained.personal["model"][k], rtol=0, atol=tolerance
        )
        for metric, value in alone.metrics.items():
            assert value == pytest.approx(trained.metrics[metric][k].item(), abs=1e-4)


def test_repeated_round_is_bit_identical(
    make_learner: MakeLearner, clients: list[ClientData]
) -> None:
    learner = make_learner()
    received_KD, personal = start(learner)
    received_D, own = received_KD[0].float(), {"model": personal["model"][0].float()}
    before = received_D.clone(), own["model"].clone()
    first, again = (
        train_round(learner, clients[0], received_D, own, seed=1, client="a", round_=0)
        for _ in range(2)
    )
    assert torch.equal(first.update_D, again.update_D)
    assert torch.equal(first.personal["model"], again.personal["model"])
    assert first.metrics == again.metrics
    assert torch.equal(received_D, before[0])
    assert torch.equal(own["model"], before[1])


def test_metrics_match_hand_computed_counts_and_losses(
    make_learner: MakeLearner, clients: list[ClientData]
) -> None:
    learner, data = make_learner(), clients[1]
    received_KD, personal = start(learner)
    received_D, own = received_KD[1], {"model": personal["model"][1]}
    result = train_round(learner, data, received_D, own, seed=1, client="b", round_=0)

    def correct(model_D: Tensor) -> int:
        logits = load(learner.network.module, model_D)(data.x_test)
        return int((logits.argmax(1) == data.y_test).sum())

    def loss(model_D: Tensor) -> float:
        logits = load(learner.network.module, model_D)(data.x_train)
        return functional.cross_entropy(logits, data.y_train).item()

    after_D = received_D + result.update_D
    assert result.metrics == pytest.approx(
        {
            "train_samples": 7,
            "test_samples": 4,
            "correct_customized": correct(received_D),
            "correct_local": correct(after_D),
            "correct_personalized": correct(result.personal["model"]),
            "loss_before": loss(received_D),
            "loss_after": loss(after_D),
        }
    )
    measured = evaluate(learner, data, received_D, own)
    assert measured == {
        "test_samples": 4,
        "correct_customized": correct(received_D),
        "correct_personalized": correct(own["model"]),
    }


def test_without_personalization_there_is_no_personal_model(
    make_learner: MakeLearner, clients: list[ClientData]
) -> None:
    learner = make_learner(personalizer="none")
    received_D = learner.initial_model()
    state = learner.first_state(received_D)
    result = train_round(learner, clients[0], received_D, state, seed=1, client="a", round_=0)
    assert result.personal == {}
    assert "correct_personalized" not in result.metrics


def test_momentum_and_weight_decay_match_pytorch_sgd(
    make_learner: MakeLearner, clients: list[ClientData]
) -> None:
    training = {"epochs": 2, "batch_size": 4, "momentum": 0.9, "weight_decay": 0.05}
    learner = make_learner(personalizer="none", training=training)
    received_D = learner.initial_model()
    result = train_round(learner, clients[0], received_D, {}, seed=1, client="a", round_=0)

    module = load(learner.network.module, received_D)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9, weight_decay=0.05)
    draws = generator(1, "batches", "a", 0)
    for _ in range(2):
        for at in torch.randperm(10, generator=draws).split(4):
            optimizer.zero_grad()
            x, y = clients[0].x_train[at], clients[0].y_train[at]
            functional.cross_entropy(module(x), y).backward()
            optimizer.step()
    tensors = dict(module.named_parameters())
    after_D = torch.cat([tensors[one.name].detach().flatten() for one in learner.spec.tensors])
    assert torch.allclose(received_D + result.update_D, after_D, rtol=0, atol=1e-12)


def test_diverged_client_does_not_affect_other_clients(
    make_learner: MakeLearner, clients: list[ClientData]
) -> None:
    learner = make_learner()
    received_KD, personal = start(learner)
    cohort = Cohort.of(clients, torch.float64)
    batches = Batches.draw(cohort.train_K, NAMES, learner.training, seed=5, round_=3)
    calm = train(learner, cohort, batches, received_KD, personal)
    broken_KD = received_KD.clone()
    broken_KD[1] = float("nan")
    wild = train(learner, cohort, batches, broken_KD, personal)
    assert wild.update_KD[1].isnan().all()
    assert torch.equal(wild.update_KD[[0, 2]], calm.update_KD[[0, 2]])


def test_batches_contain_every_sample_once_per_epoch() -> None:
    training = Training(epochs=3, batch_size=4)
    batches = Batches.draw([10, 7], ["a", "b"], training, seed=1, round_=0)
    assert batches.steps_K == (9, 6)
    for k, size in enumerate((10, 7)):
        real = batches.weight_KSB[k] > 0
        seen = batches.index_KSB[k][real]
        assert seen.bincount(minlength=size).tolist() == [3] * size
        sums = batches.weight_KSB[k].sum(1)
        assert torch.allclose(
            sums[: batches.steps_K[k]], torch.ones_like(sums[: batches.steps_K[k]])
        )
        assert (sums[batches.steps_K[k] :] == 0).all()
    other = Batches.draw([7], ["b"], training, seed=1, round_=0)
    assert torch.equal(other.index_KSB[0], batches.index_KSB[1, :6])


def test_trigger_success_matches_a_hand_computed_case(make_learner: MakeLearner) -> None:
    """The model looks only at the trigger's corner: class 2 if it is lit, else class 0."""
    trigger = {"name": "badnets", "size": 1, "target": 2}
    learner = make_learner(
        model={"name": "mlp", "hidden": []}, personalizer="none", evaluation={"trigger": trigger}
    )
    parts = {name: stop - start for name, start, stop in learner.spec.layout}
    assert list(parts.values()) == [10, 640]
    model_D = torch.zeros(learner.spec.dim, dtype=torch.float64)
    model_D[0], model_D[10 + 2 * 64] = 0.5, 1.0
    x, y = torch.zeros(5, 1, 8, 8, dtype=torch.float64), torch.tensor([0, 0, 2, 1, 2])
    data = ClientData(x, y, x, y, 10)
    assert evaluate(learner, data, model_D, {}) == {
        "test_samples": 5,
        "correct_customized": 2,
        "triggered_samples": 3,
        "fooled_customized": 3,
    }
    assert bool((data.x_test == 0).all())


def test_padding_is_not_counted_as_fooled_by_a_trigger(
    make_learner: MakeLearner, clients: list[ClientData]
) -> None:
    evaluation = {"trigger": {"name": "dba", "width": 3}}
    learner = make_learner(evaluation=evaluation)
    cohort = Cohort.of(clients, torch.float64)
    received_KD, personal = start(learner)
    batches = Batches.draw(cohort.train_K, NAMES, learner.training, seed=5, round_=3)
    metrics = train(learner, cohort, batches, received_KD, personal).metrics
    for k, data in enumerate(clients):
        alone = evaluate(learner, data, received_KD[k], {"model": personal["model"][k]})
        assert alone["triggered_samples"] == int((data.y_test != 2).sum())
        assert metrics["triggered_samples"][k] == alone["triggered_samples"]
        assert metrics["fooled_customized"][k] == alone["fooled_customized"]
    assert {"fooled_local", "fooled_personalized"} <= metrics.keys()


def unbalanced(sizes: Sequence[int]) -> list[ClientData]:
    """Clients with these numbers of training samples, and about half as many test samples."""
    draws = torch.Generator().manual_seed(4)

    def sample(n: int) -> tuple[Tensor, Tensor]:
        x = torch.rand(n, 1, 8, 8, generator=draws, dtype=torch.float64)
        return x, torch.randint(10, (n,), generator=draws)

    return [ClientData(*sample(n), *sample(n // 2 + 1), 10) for n in sizes]


def with_nan_padding(cohort: Cohort) -> Cohort:
    """The same data; padding is NaN."""

    def padded(x_KN: Tensor, sizes: Sequence[int]) -> Tensor:
        x_KN = x_KN.clone()
        for x_N, size in zip(x_KN, sizes, strict=True):
            x_N[size:] = float("nan")
        return x_KN

    return replace(
        cohort,
        x_train_KN=padded(cohort.x_train_KN, cohort.train_K),
        x_test_KT=padded(cohort.x_test_KT, cohort.test_K),
    )


SIZES = (4, 160, 1, 33, 17)


@pytest.mark.parametrize("most", [1, 7, 40, 100, 4096])
def test_evaluation_ignores_padding(
    make_learner: MakeLearner, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    learner = make_learner(
        evaluation={"trigger": {"name": "dba", "width": 3}},
        training={"epochs": 1, "batch_size": 40},
    )
    data, names = unbalanced(SIZES), [str(k) for k in range(len(SIZES))]
    received_KD, personal = start(learner, len(SIZES))
    cohort = with_nan_padding(Cohort.of(data, torch.float64))
    assert cohort.x_train_KN.isnan().any()
    batches = Batches.draw(cohort.train_K, names, learner.training, seed=5, round_=3)
    monkeypatch.setattr(Stacked, "at_once", lambda self, x: most)
    trained = train(learner, cohort, batches, received_KD, personal)
    for k, own in enumerate(data):
        module = load(learner.network.module, received_KD[k])
        hit = module(own.x_test).argmax(1) == own.y_test
        assert trained.metrics["correct_customized"][k] == hit.sum()
        loss = functional.cross_entropy(module(own.x_train), own.y_train)
        assert trained.metrics["loss_before"][k].item() == pytest.approx(loss.item(), abs=1e-12)
        module = load(learner.network.module, received_KD[k] + trained.update_KD[k])
        loss = functional.cross_entropy(module(own.x_train), own.y_train)
        assert trained.metrics["loss_after"][k].item() == pytest.approx(loss.item(), abs=1e-12)
        assert trained.metrics["triggered_samples"][k] == (own.y_test != 2).sum()
    assert all(bool(column.isfinite().all()) for column in trained.metrics.values())


@pytest.mark.parametrize("most", [40, 100])
def test_evaluation_computes_little_padding(
    make_learner: MakeLearner, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    learner, cohort = make_learner(personalizer="none"), Cohort.of(unbalanced(SIZES))
    models_KD = learner.initial_model().float().repeat(len(SIZES), 1)
    learner.network.module.float()
    passed, logits = list[int](), Stacked.logits

    def counted(network: Stacked, models_KD: Tensor, x_KB: Tensor) -> Tensor:
        passed.append(x_KB.shape[0] * x_KB.shape[1])
        return logits(network, models_KD, x_KB)

    monkeypatch.setattr(Stacked, "logits", counted)
    monkeypatch.setattr(Stacked, "at_once", lambda self, x: most)
    evaluate_many(learner, cohort, models_KD, {})
    assert sum(passed) <= sum(size + TILE for size in cohort.test_K)


@pytest.mark.parametrize("samples", [1, 2, 3, TILE, TILE + 1, 4097, 4099])
def test_client_evaluated_alone_has_the_same_loss_as_in_a_cohort(samples: int) -> None:
    """An agent evaluates one client, and the simulation pads it to the size of larger clients."""
    tables = {"name": "alone", "data": {"dataset": "digits"}, "model": "logistic"}
    learner = Learner.of(Experiment.from_tables(tables))
    model_1D = learner.initial_model().float()[None]
    draws = torch.Generator().manual_seed(samples)
    for _ in range(20):
        x_1T = torch.randn(1, samples, 1, 8, 8, generator=draws)
        y_1T = torch.randint(10, (1, samples), generator=draws)
        larger = [torch.cat([own, own.new_zeros(1, 40, *own.shape[2:])], 1) for own in (x_1T, y_1T)]
        alone, padded = (
            local._each(learner, model_1D, x, y, [samples], learner.scoring.losses)
            for x, y in ((x_1T, y_1T), larger)
        )
        assert torch.equal(alone, padded[:, :samples])


@pytest.mark.parametrize("most", [1, 2, 3, 100])
def test_evaluation_is_independent_of_the_number_of_passes(
    make_learner: MakeLearner,
    clients: list[ClientData],
    monkeypatch: pytest.MonkeyPatch,
    most: int,
) -> None:
    learner, cohort = make_learner(), Cohort.of(clients, torch.float64)
    models_KD, personal = start(learner)
    expected = evaluate_many(learner, cohort, models_KD, personal)
    monkeypatch.setattr(Stacked, "at_once", lambda self, x: most)
    scores = evaluate_many(learner, cohort, models_KD, personal)
    assert {name: column.tolist() for name, column in scores.items()} == {
        name: column.tolist() for name, column in expected.items()
    }
