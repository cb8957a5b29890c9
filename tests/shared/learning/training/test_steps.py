"""The steps of a round: training in groups, clients that finish early, no device waits."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.learning.data.client_data import ClientData
from rampart_fl.shared.learning.training.cohort import Batches, Cohort
from rampart_fl.shared.learning.training.learner import Learner
from rampart_fl.shared.learning.training.local import CohortResult, train, train_round
from rampart_fl.shared.learning.training.padding_order import unit
from rampart_fl.shared.learning.training.personalizers import Batch, StepState, personalizers
from rampart_fl.shared.learning.training.privacy import STEPS
from rampart_fl.shared.learning.training.steps import take_steps
from rampart_fl.shared.learning.training.task import LocalTask
from rampart_fl.shared.rounding import ceil_div
from tests.fake_device import NAME, PretendedDevice, far

NAMES = ["a", "b", "c"]
BATCH_NORM = {"name": "wide_resnet", "depth": 10, "width": 1}
MakeLearner = Callable[..., Learner]


@pytest.fixture(autouse=True)
def _unaccounted(monkeypatch: pytest.MonkeyPatch) -> None:
    """No ε is read here, and Opacus takes longer for it than the steps take."""
    monkeypatch.setattr("rampart_fl.shared.learning.training.privacy.epsilon", lambda *_: 0.0)


def begun(learner: Learner, dtype: torch.dtype = torch.float64) -> tuple[Tensor, StepState]:
    """The models that three clients received, and the state before the first step."""
    draws = torch.Generator().manual_seed(8)
    noise_KD = 0.01 * torch.randn(3, learner.spec.dim, generator=draws, dtype=dtype)
    received_KD = learner.initial_model().to(dtype) + noise_KD.abs()
    personal = learner.personalizer.init(received_KD.flip(0))
    return received_KD, StepState(received_KD, learner.personalizer.begin(received_KD, personal))


def stepped(learner: Learner, clients: list[ClientData]) -> tuple[StepState, Tensor]:
    """The state after a round of three clients, the second of which is hostile."""
    sizes, dtype = [len(one.y_train) for one in clients], torch.float64
    batches = Batches.draw(sizes, NAMES, learner.training, 5, 3)
    received_KD, local = begun(learner)
    return take_steps(learner, Cohort.of(clients, dtype), batches, received_KD, local, [1])


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [1, 2])
@pytest.mark.parametrize(
    "tables",
    [
        *({"personalizer": name} for name in personalizers.names()),
        {"training": {"batch_size": 4, "momentum": 0.5, "objective": ["hmsdfl", "fedprox"]}},
        {"training": {"batch_size": 4, "privacy": {}}},
        {"model": {"name": "mlp", "hidden": [3]}},
    ],
    ids=str,
)
def test_training_in_groups_equals_training_all_clients_together(
    make_learner: MakeLearner,
    clients: list[ClientData],
    monkeypatch: pytest.MonkeyPatch,
    tables: dict[str, Any],
    at_once: int,
) -> None:
    learner = make_learner(**tables)
    together, noised_K = stepped(learner, clients)
    monkeypatch.setattr(
        "rampart_fl.shared.learning.network.stacked.Stacked.trained_at_once", lambda *_: at_once
    )
    in_turn, noised_too_K = stepped(learner, clients)
    assert torch.allclose(in_turn.model_KD, together.model_KD, rtol=0, atol=1e-12)
    assert in_turn.personal.keys() == together.personal.keys()
    for name, tensor in together.personal.items():
        assert torch.allclose(in_turn.personal[name], tensor, rtol=0, atol=1e-12)
    assert torch.equal(noised_K, noised_too_K)
    assert noised_K.tolist() == ([15, 10, 5] if learner.training.privacy else [0, 0, 0])


SIZES = (3, 16, 1, 12, 9, 7)
"""Clients' sample counts in no order, from one to four batches."""
UNBALANCED = pytest.mark.parametrize(
    "tables",
    [
        *({"personalizer": name} for name in personalizers.names()),
        {"personalizer": "fedcap", "training": {"momentum": 0.9, "weight_decay": 0.01}},
        {"personalizer": "none", "training": {"objective": ["fedprox"], "momentum": 0.5}},
        {"personalizer": "fedcap", "training": {"objective": ["hmsdfl"]}},
        {"personalizer": "ditto", "training": {"privacy": {}}},
        {"personalizer": "fedcap", "model": {"name": "mlp", "hidden": [7]}},
    ],
    ids=str,
)


def unbalanced(dtype: torch.dtype) -> list[ClientData]:
    """Clients with `SIZES` samples; small clients lack most classes."""
    draws = torch.Generator().manual_seed(2)

    def sample(n: int) -> tuple[Tensor, Tensor]:
        x = torch.rand(n, 1, 8, 8, generator=draws, dtype=dtype)
        return x, torch.randint(10, (n,), generator=draws)

    return [ClientData(*sample(n), *sample(1), 10) for n in SIZES]


def begun_by_many(learner: Learner, dtype: torch.dtype) -> tuple[Tensor, dict[str, Tensor]]:
    """The models that the unbalanced clients received, and their personal state."""
    draws = torch.Generator().manual_seed(8)
    noise_KD = torch.randn(len(SIZES), learner.spec.dim, generator=draws, dtype=dtype)
    received_KD = learner.initial_model().to(dtype) + 0.01 * noise_KD
    return received_KD, learner.first_states(received_KD.flip(0))


def trained(learner: Learner, dtype: torch.dtype) -> CohortResult:
    """A round of the unbalanced clients, two of which are hostile."""
    received_KD, personal = begun_by_many(learner, dtype)
    names = [str(k) for k in range(len(SIZES))]
    held_out = learner.personalizer.held_out
    batches = Batches.draw(SIZES, names, learner.training, 5, 3, held_out=held_out)
    cohort = Cohort.of(unbalanced(dtype), dtype)
    return train(learner, cohort, batches, received_KD, personal, measure=False, hostile=[1, 4])


def several_epochs(tables: dict[str, Any]) -> dict[str, Any]:
    """The tables with two epochs of batches of 5."""
    training = {"epochs": 2, "batch_size": 5, **tables.get("training", {})}
    return {**tables, "training": training}


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [4, 100])
@UNBALANCED
def test_removing_finished_clients_changes_no_bit(
    make_learner: MakeLearner,
    monkeypatch: pytest.MonkeyPatch,
    tables: dict[str, Any],
    at_once: int,
) -> None:
    learner = make_learner(**several_epochs(tables))
    learner.network.module.float()
    monkeypatch.setattr(
        "rampart_fl.shared.learning.network.stacked.Stacked.trained_at_once", lambda *_: at_once
    )
    result = trained(learner, torch.float32)
    monkeypatch.setattr("rampart_fl.shared.learning.training.steps.unit", lambda _: len(SIZES))
    stayed = trained(learner, torch.float32)
    assert torch.equal(result.update_KD, stayed.update_KD)
    assert result.personal.keys() == stayed.personal.keys()
    for name, tensor in stayed.personal.items():
        assert torch.equal(result.personal[name], tensor)


@pytest.mark.slow
@UNBALANCED
def test_batched_training_of_unbalanced_clients_equals_solo_training(
    make_learner: MakeLearner,
    monkeypatch: pytest.MonkeyPatch,
    tables: dict[str, Any],
) -> None:
    learner, dtype = make_learner(**several_epochs(tables)), torch.float64
    received_KD, personal = begun_by_many(learner, dtype)
    monkeypatch.setattr(
        "rampart_fl.shared.learning.network.stacked.Stacked.trained_at_once", lambda *_: 4
    )
    together = trained(learner, dtype)
    for k, data in enumerate(unbalanced(dtype)):
        own = {name: tensor[k] for name, tensor in personal.items()}
        usual = learner.as_attacker() if k in (1, 4) else learner
        alone = train_round(usual, data, received_KD[k], own, seed=5, client=str(k), round_=3)
        assert torch.allclose(alone.update_D, together.update_KD[k], rtol=0, atol=1e-12)
        for name, tensor in together.personal.items():
            if name != STEPS:
                assert torch.allclose(alone.personal[name], tensor[k], rtol=0, atol=1e-12)


def test_finished_clients_compute_no_further_gradients(
    make_learner: MakeLearner, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = make_learner(personalizer="none", training={"epochs": 2, "batch_size": 5})
    gradients, counts = LocalTask.gradients, list[int]()

    def counted(task: LocalTask, batch: Batch, *models: Tensor, **own: Any) -> tuple[Tensor, ...]:
        counts.append(len(batch.x_KB))
        return gradients(task, batch, *models, **own)

    monkeypatch.setattr(LocalTask, "gradients", counted)
    trained(learner, torch.float64)
    steps_K = [2 * ceil_div(size, 5) for size in SIZES]
    assert len(counts) == max(steps_K)
    assert sum(counts) <= sum(steps_K) + unit(learner.spec.dim) * max(steps_K)


def sends(learner: Learner, clients: list[ClientData]) -> int:
    """The number of tensors that a round sends to another device, without waiting for it."""
    sizes = [len(one.y_train) for one in clients]
    received_KD, local = begun(learner, torch.float32)
    batches = Batches.draw(sizes, NAMES, learner.training, 5, 3)
    with PretendedDevice() as device:
        cohort = Cohort.of(clients, torch.float32, NAME)
        personal = {name: far(tensor) for name, tensor in local.personal.items()}
        there = StepState(far(received_KD), personal)
        device.waits.clear()
        before = device.sent
        take_steps(learner, cohort, batches, there.model_KD, there, [1])
        assert not device.waits
        return device.sent - before


@pytest.mark.slow
@pytest.mark.parametrize(
    "tables",
    [
        *({"personalizer": name} for name in personalizers.names()),
        {"training": {"objective": [{"name": "msdfl"}, {"name": "msdfl", "form": "batch_sum"}]}},
        {"training": {"objective": ["fedprox"], "momentum": 0.5, "weight_decay": 0.1}},
        {"model": BATCH_NORM, "data": {"dataset": "svhn"}},
    ],
    ids=str,
)
def test_steps_neither_wait_for_a_device_nor_send_to_it(
    make_learner: MakeLearner, clients: list[ClientData], tables: dict[str, Any]
) -> None:
    training = {"batch_size": 4, **tables.get("training", {})}
    if tables.get("model") == BATCH_NORM:
        training["batch_size"] = 10  # A step through this many layers is slow.
        clients = [
            ClientData(*(torch.rand(len(y), 3, 32, 32), y) * 2, 10)
            for y in (one.y_train for one in clients)
        ]
    one, two = (
        make_learner(**{**tables, "training": {**training, "epochs": epochs}}) for epochs in (1, 2)
    )
    sends(one, clients)  # The position of the head is sent once and cached.
    assert sends(one, clients) == sends(two, clients) <= 8
