"""Local training: the stacked form against a plain loop, and what a client reports."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from rampart_fl.shared.experiment.schema import Training
from rampart_fl.shared.learning.data.client_data import ClientData
from rampart_fl.shared.learning.network.vector import load
from rampart_fl.shared.learning.training.cohort import Batches, Cohort
from rampart_fl.shared.learning.training.evaluation import evaluate
from rampart_fl.shared.learning.training.learner import Learner
from rampart_fl.shared.learning.training.local import train, train_round
from rampart_fl.shared.seeding import generator

MakeLearner = Callable[..., Learner]
NAMES = ["a", "b", "c"]
NORMED = {"name": "module", "path": "tests.shared.learning.training.test_local:Normed"}


class Normed(nn.Sequential):
    """A network with batch normalization of four features."""

    def __init__(self) -> None:
        super().__init__(
            nn.Flatten(), nn.Linear(64, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 10)
        )


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


@pytest.mark.parametrize("personalizer", ["ditto", "fedcap", "apfl", "fedper", "fedrod", "fedbabu"])
def test_client_whose_training_diverges_keeps_its_personal_state(
    make_learner: MakeLearner, clients: list[ClientData], personalizer: str
) -> None:
    learner = make_learner(personalizer=personalizer)
    received_KD, personal = start(learner)
    received_KD[1] *= 1e300
    cohort = Cohort.of(clients, torch.float64)
    batches = Batches.draw(cohort.train_K, NAMES, learner.training, seed=5, round_=3)
    trained = train(learner, cohort, batches, received_KD, personal)
    for name, before in personal.items():
        after = trained.personal[name]
        assert after.isfinite().all()
        assert torch.equal(after[1], before[1])
        assert not torch.equal(after[0], before[0]) and not torch.equal(after[2], before[2])
    assert not trained.update_KD[1].isfinite().all()


def rounds_of(learner: Learner, data: ClientData, received_KD: Tensor, rounds: int) -> Tensor:
    """The running statistics of a client's personal model after some rounds."""
    personal = learner.personalizer.init(learner.initial_model()[None])
    cohort = Cohort.of([data], torch.float64)
    batches = Batches.draw(cohort.train_K, ["a"], learner.training, seed=5, round_=0)
    for _ in range(rounds):
        personal = train(learner, cohort, batches, received_KD, personal).personal
    return personal["model"][0, learner.spec.trainable :]


def test_running_variances_of_apfl_stay_positive(
    make_learner: MakeLearner, clients: list[ClientData]
) -> None:
    """The client's variances are far below those of the received models."""
    learner = make_learner(personalizer={"name": "apfl", "adaptive": False}, model=NORMED)
    received_KD = learner.initial_model()[None].clone()
    (place,) = [(a, b) for name, a, b in learner.spec.statistics if name.endswith("running_var")]
    received_KD[:, slice(*place)] = 10.0
    own_D = rounds_of(learner, clients[0], received_KD, 20)
    assert (own_D[place[0] - learner.spec.trainable : place[1] - learner.spec.trainable] > 0).all()


@pytest.mark.parametrize("tuned", ["all", "head", "body"])
def test_running_statistics_of_fedbabu_follow_the_batches(
    make_learner: MakeLearner, clients: list[ClientData], tuned: str
) -> None:
    learner = make_learner(personalizer={"name": "fedbabu", "tuned": tuned}, model=NORMED)
    received_KD = learner.initial_model()[None]
    own_D = rounds_of(learner, clients[0], received_KD, 1)
    assert (own_D != received_KD[0, learner.spec.trainable :]).all()


def test_running_statistics_get_no_output_noise(
    make_learner: MakeLearner, clients: list[ClientData]
) -> None:
    updates = []
    for noise in (0.0, 0.5):
        learner = make_learner(
            model=NORMED, personalizer="none", training={"output_noise": noise, "batch_size": 4}
        )
        cohort = Cohort.of(clients, torch.float64)
        batches = Batches.draw(cohort.train_K, NAMES, learner.training, seed=5, round_=3)
        received_KD = learner.initial_model().expand(3, -1).clone()
        updates.append(train(learner, cohort, batches, received_KD, {}).update_KD)
    end = learner.spec.trainable
    assert torch.equal(updates[0][:, end:], updates[1][:, end:])
    assert not torch.equal(updates[0][:, :end], updates[1][:, :end])


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
