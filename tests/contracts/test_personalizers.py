"""The contract of all personalizers: batched equals sequential training, with separate states."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.learning.training.cohort import Batches, Cohort
from rampart_fl.shared.learning.training.learner import Learner
from rampart_fl.shared.learning.training.local import train, train_round
from rampart_fl.shared.learning.training.personalizers import personalizers
from rampart_fl.shared.protocol.counts import wrong_counts
from rampart_fl.shared.simulation import simulate
from tests.contracts.unequal_clients import NAMES, SIZES, clients, learner_of, received


@pytest.fixture(params=personalizers.names())
def learner(request: pytest.FixtureRequest) -> Learner:
    """A learner in float64 with momentum and ragged batches."""
    return learner_of(request.param, momentum=0.5)


def start(learner: Learner, dtype: torch.dtype) -> tuple[Tensor, dict[str, Tensor]]:
    received_KD = received(learner).to(dtype)
    return received_KD, learner.personalizer.init(received_KD.flip(0))


def draw(learner: Learner, round_: int, at: Sequence[int] = range(3)) -> Batches:
    sizes, names = [SIZES[k] for k in at], [NAMES[k] for k in at]
    held_out = learner.personalizer.held_out
    return Batches.draw(sizes, names, learner.training, 5, round_, held_out=held_out)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5)], ids=str
)
def test_batched_training_equals_sequential_training(
    learner: Learner, dtype: torch.dtype, tolerance: float
) -> None:
    received_KD, personal = start(learner, dtype)
    before = received_KD.clone(), {key: tensor.clone() for key, tensor in personal.items()}
    data = clients()
    batches = draw(learner, 3)
    trained = train(learner, Cohort.of(data, dtype), batches, received_KD, personal)
    assert torch.equal(received_KD, before[0])
    assert personal.keys() == before[1].keys() == trained.personal.keys()
    for k, name in enumerate(NAMES):
        own = {key: tensor[k] for key, tensor in personal.items()}
        alone = train_round(learner, data[k], received_KD[k], own, seed=5, client=name, round_=3)
        assert torch.allclose(alone.update_D, trained.update_KD[k], rtol=0, atol=tolerance)
        assert wrong_counts(alone.metrics) == {}, "the aggregator would refuse them"
        for key, tensor in alone.personal.items():
            assert torch.allclose(tensor, trained.personal[key][k], rtol=0, atol=tolerance)
            assert torch.equal(personal[key], before[1][key])


def test_state_starts_as_a_copy_of_the_initial_model(learner: Learner) -> None:
    initial_KD = learner.initial_model().repeat(2, 1)
    state = learner.personalizer.init(initial_KD)
    for tensor in state.values():
        assert tensor.data_ptr() != initial_KD.data_ptr()
        assert len(tensor) == 2
    kept_KD = learner.personalizer.personalized(initial_KD, state)
    assert kept_KD is None or kept_KD.shape == initial_KD.shape


def rounds(learner: Learner, personal: dict[str, Tensor], first: int, count: int) -> list[Any]:
    """Several rounds of all clients; in each round, all clients receive the same models."""
    received_KD, _ = start(learner, torch.float64)
    cohort, results = Cohort.of(clients(), torch.float64), []
    for round_ in range(first, first + count):
        batches = draw(learner, round_)
        results.append(train(learner, cohort, batches, received_KD, personal))
        personal = results[-1].personal
    return results


def test_repeated_round_is_bitwise_equal(learner: Learner) -> None:
    _, personal = start(learner, torch.float64)
    (one,), (again,) = rounds(learner, personal, 3, 1), rounds(learner, personal, 3, 1)
    assert torch.equal(one.update_KD, again.update_KD)
    assert all(torch.equal(tensor, again.personal[key]) for key, tensor in one.personal.items())
    assert all(torch.equal(column, again.metrics[key]) for key, column in one.metrics.items())


def test_training_resumes_bitwise_from_stored_state(learner: Learner) -> None:
    """Each client's tensors are stored as bytes, as an agent stores them."""
    _, personal = start(learner, torch.float64)
    through = rounds(learner, personal, 0, 2)[1]
    (first,) = rounds(learner, personal, 0, 1)
    kept = [
        load(save({key: tensor[k].clone() for key, tensor in first.personal.items()}))
        for k in range(len(NAMES))
    ]
    stored = {key: torch.stack([one[key] for one in kept]) for key in first.personal}
    (resumed,) = rounds(learner, stored, 1, 1)
    assert torch.equal(resumed.update_KD, through.update_KD)
    assert all(torch.equal(tensor, resumed.personal[k]) for k, tensor in through.personal.items())


def test_personalized_model_does_not_modify_its_inputs(learner: Learner) -> None:
    model_KD, personal = start(learner, torch.float64)
    before = model_KD.clone(), {key: tensor.clone() for key, tensor in personal.items()}
    kept_KD = learner.personalizer.personalized(model_KD, personal)
    assert kept_KD is None or bool(kept_KD.isfinite().all())
    assert torch.equal(model_KD, before[0])
    assert all(torch.equal(tensor, before[1][key]) for key, tensor in personal.items())


def test_training_a_subset_of_clients_equals_training_all_of_them(learner: Learner) -> None:
    """Training some of the clients gives the same result as training all of them."""
    received_KD, personal = start(learner, torch.float64)
    (everyone,) = rounds(learner, personal, 3, 1)
    at = [2, 0]
    batches = draw(learner, 3, at)
    cohort = Cohort.of(clients(), torch.float64).pick(at)
    own = {key: tensor[at] for key, tensor in personal.items()}
    some = train(learner, cohort, batches, received_KD[at], own)
    assert torch.allclose(some.update_KD, everyone.update_KD[at], rtol=0, atol=1e-9)
    for key, tensor in some.personal.items():
        assert torch.allclose(tensor, everyone.personal[key][at], rtol=0, atol=1e-9)


def test_personalizer_works_with_a_full_robust_server(learner: Learner) -> None:
    """A robust pipeline, a detector, customized models, and one attacker."""
    customizer = {"name": "fedcap", "alpha": 2, "phi": 0.3}
    tables: dict[str, Any] = {
        "name": "any-server",
        "rounds": 2,
        "data": {"dataset": "digits", "clients": 5, "samples": 24},
        "model": {"name": "mlp", "hidden": [4]},
        "training": {"epochs": 1},
        "personalizer": learner.personalizer.name,
        "server": {
            "rule": ["nnm", "trimmed_mean"],
            "f": 1,
            "detectors": [{"name": "norm_bound", "threshold": 50}],
            "customizer": "fedfomo" if learner.personalizer.held_out else customizer,
        },
        "attackers": [{"count": 1, "attack": "sign_flip", "data_attack": "label_flip"}],
    }
    result = simulate(Experiment.from_tables(tables))
    assert [record.status for record in result.records] == ["published"] * 2
    assert bool(result.global_D.isfinite().all())
    keeps = learner.personalizer.init(torch.zeros(1, 1)) != {}
    assert (result.figures["accuracy_personalized"] is not None) == keeps


def test_personalization_page_names_every_personalizer() -> None:
    page = (Path(__file__).parents[2] / "docs/personalization.md").read_text()
    assert not [name for name in personalizers.names() if f"`{name}`" not in page]
