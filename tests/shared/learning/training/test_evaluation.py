"""Evaluation: padding, passes and triggers do not change what is counted for a client."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.learning.data.client_data import ClientData
from rampart_fl.shared.learning.network.stacked import Stacked
from rampart_fl.shared.learning.network.vector import load
from rampart_fl.shared.learning.training import evaluation
from rampart_fl.shared.learning.training.cohort import Batches, Cohort
from rampart_fl.shared.learning.training.evaluation import TILE, evaluate, evaluate_many
from rampart_fl.shared.learning.training.learner import Learner
from rampart_fl.shared.learning.training.local import train
from tests.shared.learning.training.test_local import NAMES, start

MakeLearner = Callable[..., Learner]


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


def test_diverged_model_does_not_count_as_fooled(make_learner: MakeLearner) -> None:
    learner = make_learner(
        model="mlp", personalizer="none", evaluation={"trigger": {"name": "badnets", "target": 0}}
    )
    x, y = torch.zeros(3, 1, 8, 8), torch.tensor([0, 1, 2])
    model_D = torch.full((learner.spec.dim,), float("nan"))
    metrics = evaluate(learner, ClientData(x, y, x, y, 10), model_D, {})
    assert (metrics["triggered_samples"], metrics["fooled_customized"]) == (2, 0)


def test_padding_is_not_counted_as_fooled_by_a_trigger(
    make_learner: MakeLearner, clients: list[ClientData]
) -> None:
    learner = make_learner(evaluation={"trigger": {"name": "dba", "width": 3}})
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
            evaluation._each(learner, model_1D, x, y, [samples], learner.scoring.losses)
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
