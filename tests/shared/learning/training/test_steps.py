"""The steps of a round: groups of clients in turn as all at once; no wait for a device."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.learning.data.client_data import ClientData
from rampart_fl.shared.learning.training.cohort import Batches, Cohort
from rampart_fl.shared.learning.training.learner import Learner
from rampart_fl.shared.learning.training.personalizers import Local, personalizers
from rampart_fl.shared.learning.training.steps import take_steps
from tests.pretended import NAME, PretendedDevice, far

NAMES = ["a", "b", "c"]
BATCH_NORM = {"name": "wide_resnet", "depth": 10, "width": 1}
MakeLearner = Callable[..., Learner]


def begun(learner: Learner, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Local]:
    """The models that three clients received, and what is trained from them."""
    draws = torch.Generator().manual_seed(8)
    noise_KD = 0.01 * torch.randn(3, learner.spec.dim, generator=draws, dtype=dtype)
    received_KD = learner.initial_model().to(dtype) + noise_KD.abs()
    personal = learner.personalizer.init(received_KD.flip(0))
    return received_KD, Local(received_KD, learner.personalizer.begin(received_KD, personal))


def stepped(learner: Learner, clients: list[ClientData]) -> tuple[Local, Tensor]:
    """After a round of three clients, the second of which is hostile."""
    sizes, dtype = [len(one.y_train) for one in clients], torch.float64
    batches = Batches.draw(sizes, NAMES, learner.training, 5, 3)
    received_KD, local = begun(learner)
    return take_steps(learner, Cohort.of(clients, dtype), batches, received_KD, local, [1])


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
def test_groups_of_clients_train_in_turn_as_all_at_once(
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


def sends(learner: Learner, clients: list[ClientData]) -> int:
    """How many tensors go to another device in the steps of a round, none of which waits for it."""
    sizes = [len(one.y_train) for one in clients]
    received_KD, local = begun(learner, torch.float32)
    batches = Batches.draw(sizes, NAMES, learner.training, 5, 3)
    with PretendedDevice() as device:
        cohort = Cohort.of(clients, torch.float32, NAME)
        personal = {name: far(tensor) for name, tensor in local.personal.items()}
        there = Local(far(received_KD), personal)
        device.waits.clear()
        before = device.sent
        take_steps(learner, cohort, batches, there.model_KD, there, [1])
        assert not device.waits
        return device.sent - before


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
def test_no_step_waits_for_another_device_or_sends_to_it(
    make_learner: MakeLearner, clients: list[ClientData], tables: dict[str, Any]
) -> None:
    training = {"batch_size": 4, **tables.get("training", {})}
    if tables.get("model") == BATCH_NORM:
        clients = [
            ClientData(*(torch.rand(len(y), 3, 32, 32), y) * 2, 10)
            for y in (one.y_train for one in clients)
        ]
    one, three = (
        make_learner(**{**tables, "training": {**training, "epochs": epochs}}) for epochs in (1, 3)
    )
    sends(one, clients)  # Where the head is, is sent once and kept.
    assert sends(one, clients) == sends(three, clients) <= 8
