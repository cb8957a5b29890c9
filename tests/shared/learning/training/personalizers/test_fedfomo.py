"""FedFomo's client: the worked example, a slow reference, and the held-out samples."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment.schema import Experiment, Training
from rampart_fl.shared.learning.data.client_data import client_data
from rampart_fl.shared.learning.training.cohort import Batches, Cohort
from rampart_fl.shared.learning.training.learner import Learner
from rampart_fl.shared.learning.training.local import train, train_round
from rampart_fl.shared.learning.training.personalizers.fedfomo import FedFomo
from rampart_fl.shared.validation import validate

HUGE = 2.0**120
EXAMPLE = [((3.0, 4.0), 0.5), ((0.0, 1.0), 0.8), ((1.0, 0.0), 1.2)]


def offered(values: list[tuple[float, float]], clients: int = 1) -> list[tuple[Tensor, Tensor]]:
    return [(torch.tensor([value]).repeat(clients, 1), torch.ones(clients)) for value in values]


def losses(table: dict[tuple[float, ...], float]):
    def loss(models_KD: Tensor) -> Tensor:
        return torch.tensor([table[tuple(model_D.tolist())] for model_D in models_KD])

    return loss


def test_peer_weights_match_the_worked_example() -> None:
    received_KD, own = torch.tensor([[9.0, 9.0]]), {"model": torch.zeros(1, 2)}
    table = {(0.0, 0.0): 1.0, **dict(EXAMPLE)}
    start_KD, reported = FedFomo().start(
        received_KD, own, offered([model for model, _ in EXAMPLE]), losses(table)
    )
    raw = [round(float(column), 6) for column in reported.values()]
    assert (list(reported), raw) == (["weight_00", "weight_01", "weight_02"], [0.1, 0.2, 0.0])
    torch.testing.assert_close(start_KD, torch.tensor([[1.0, 2.0]]))
    assert own["model"].tolist() == [[0.0, 0.0]] and received_KD.tolist() == [[9.0, 9.0]]


def test_own_model_is_kept_if_no_peer_has_a_lower_loss() -> None:
    own = {"model": torch.tensor([[0.5, -0.5]])}
    table = {(0.5, -0.5): 1.0, (1.0, 1.0): 1.0, (2.0, 2.0): 3.0}
    offers = offered([(1.0, 1.0), (2.0, 2.0), (0.5, -0.5)])
    start_KD, reported = FedFomo().start(own["model"] * 0, own, offers, losses(table))
    assert torch.equal(start_KD, own["model"])
    assert [float(column) for column in reported.values()] == [0.0, 0.0, 0.0]


def test_own_model_is_kept_if_no_peers_are_offered() -> None:
    own = {"model": torch.tensor([[0.5, -0.5]])}
    start_KD, reported = FedFomo().start(own["model"] * 0, own, (), losses({}))
    assert torch.equal(start_KD, own["model"]) and reported == {}


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), 1e30])
def test_peer_with_huge_or_non_finite_loss_gets_zero_weight(loss: float) -> None:
    own = {"model": torch.zeros(1, 2)}
    table = {(0.0, 0.0): 1.0, (HUGE, -HUGE): loss, (0.0, 2.0): 0.5}
    offers = offered([(HUGE, -HUGE), (0.0, 2.0)])
    start_KD, reported = FedFomo().start(own["model"], own, offers, losses(table))
    assert [float(column) for column in reported.values()] == [0.0, 0.25]
    torch.testing.assert_close(start_KD, torch.tensor([[0.0, 2.0]]))


def test_each_client_weights_only_the_models_offered_to_it() -> None:
    own = {"model": torch.zeros(2, 2)}
    models_KD = torch.tensor([[1.0, 0.0], [float("nan"), 1.0]])
    table = {(0.0, 0.0): 1.0, (1.0, 0.0): 0.5}

    def loss(models_KD: Tensor) -> Tensor:
        return torch.tensor([table.get(tuple(m.tolist()), float("nan")) for m in models_KD])

    offers = [(models_KD, torch.tensor([1.0, 0.0]))]
    start_KD, reported = FedFomo().start(own["model"], own, offers, loss)
    assert start_KD.tolist() == [[1.0, 0.0], [0.0, 0.0]]
    assert reported["weight_00"].tolist() == [0.5, 0.0]


EXPERIMENT = Experiment.from_tables(
    {
        "name": "fomo",
        "data": {"dataset": "digits", "clients": 20},
        "model": {"name": "mlp", "hidden": [5]},
        "training": {"epochs": 2, "learning_rate": 0.1},
        "personalizer": {"name": "fedfomo", "validation": 0.3},
        "server": {"customizer": {"name": "fedfomo", "peers": 3}},
    }
)


def test_round_mixes_peers_by_the_formula_then_trains_on_remaining_samples() -> None:
    learner, data = Learner.of(EXPERIMENT), client_data(EXPERIMENT.data, 2, 0)
    draws = torch.Generator().manual_seed(4)
    first_D = learner.initial_model()
    peers = [first_D + 0.3 * torch.randn(len(first_D), generator=draws) for _ in range(3)]
    own_D = first_D + 0.3 * torch.randn(len(first_D), generator=draws)
    received_D = first_D + 1.0
    result = train_round(
        learner, data, received_D, {"model": own_D}, seed=7, client="c", round_=4, offered=peers
    )

    sizes, held_out = [len(data.y_train)], learner.personalizer.held_out
    batches = Batches.draw(sizes, ["c"], learner.training, 7, 4, held_out=held_out)
    held = batches.held[0]
    assert len(held) == round(0.3 * sizes[0])

    def logits(model_D: Tensor, x: Tensor) -> Tensor:
        return learner.network.logits(model_D[None], x[None])[0]

    def loss(model_D: Tensor) -> float:
        return float(
            functional.cross_entropy(logits(model_D, data.x_train[held]), data.y_train[held])
        )

    raw = [
        max(0.0, (loss(own_D) - loss(peer_D)) / float((peer_D - own_D).norm())) for peer_D in peers
    ]
    assert sum(raw) > 0 and 0.0 in raw
    for place, weight in enumerate(raw):
        assert result.metrics[f"weight_{place:02d}"] == pytest.approx(weight, rel=1e-4, abs=1e-7)
    model_D = own_D + sum(
        w / sum(raw) * (peer_D - own_D) for w, peer_D in zip(raw, peers, strict=True)
    )
    for batch, weight in zip(batches.index_KSB[0], batches.weight_KSB[0], strict=True):
        used = batch[weight > 0]
        model_D = model_D.clone().requires_grad_()
        functional.cross_entropy(logits(model_D, data.x_train[used]), data.y_train[used]).backward()
        assert model_D.grad is not None
        model_D = (model_D - 0.1 * model_D.grad).detach()
    torch.testing.assert_close(result.personal["model"], model_D, rtol=0, atol=1e-5)
    torch.testing.assert_close(received_D + result.update_D, model_D, rtol=0, atol=1e-5)


def test_batched_round_equals_sequential_rounds_with_unequal_offers() -> None:
    learner = Learner.of(EXPERIMENT)
    learner.network.module.double()
    names, data = ["a", "b", "c"], [client_data(EXPERIMENT.data, k, 0) for k in (1, 5, 9)]
    sizes = [len(one.y_train) for one in data]
    draws = torch.Generator().manual_seed(4)
    first_D = learner.initial_model()
    offered_PKD = first_D + 0.3 * torch.randn(
        2, 3, len(first_D), generator=draws, dtype=torch.float64
    )
    own_KD = first_D + 0.3 * torch.randn(3, len(first_D), generator=draws, dtype=torch.float64)
    counts = [2, 0, 1]
    offers = [
        (offered_PKD[p], torch.tensor([float(count > p) for count in counts])) for p in range(2)
    ]
    batches = Batches.draw(sizes, names, learner.training, 7, 4, held_out=0.3)
    cohort = Cohort.of(data, torch.float64)
    received_KD = first_D.repeat(3, 1)
    together = train(learner, cohort, batches, received_KD, {"model": own_KD}, offers=offers)
    for k, name in enumerate(names):
        alone = train_round(
            learner,
            data[k],
            first_D,
            {"model": own_KD[k]},
            seed=7,
            client=name,
            round_=4,
            offered=list(offered_PKD[: counts[k], k]),
        )
        torch.testing.assert_close(alone.update_D, together.update_KD[k], rtol=0, atol=1e-9)
        for place in range(counts[k]):
            column = together.metrics[f"weight_{place:02d}"]
            assert alone.metrics[f"weight_{place:02d}"] == pytest.approx(float(column[k]), abs=1e-9)


def test_held_out_samples_are_fixed_across_rounds_and_never_trained_on() -> None:
    training = Training(epochs=3, batch_size=4)
    sizes, names = [11, 5, 2, 1], ["a", "b", "c", "d"]
    first = Batches.draw(sizes, names, training, 1, 0, held_out=0.2)
    later = Batches.draw(sizes, names, training, 1, 9, held_out=0.2)
    for k, size in enumerate(sizes):
        held = set(first.held[k].tolist())
        assert held == set(later.held[k].tolist())
        assert len(held) == min(max(round(0.2 * size), 1), size - 1)
        for batches in (first, later):
            used = batches.index_KSB[k][batches.weight_KSB[k] > 0].tolist()
            assert sorted(used) == sorted(3 * [n for n in range(size) if n not in held])
    assert all(len(one) == 0 for one in Batches.draw(sizes, names, training, 1, 0).held)


def test_server_that_offers_no_models_is_rejected() -> None:
    tables = {**EXPERIMENT.tables(), "server": {}}
    with pytest.raises(ConfigurationError, match="weighs models that the server offers"):
        validate(Experiment.from_tables(tables))
    validate(EXPERIMENT)
