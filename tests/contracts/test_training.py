"""Batched training equals sequential training for all models, objectives and personalizers.

The tests compare models with plain torch loops. On a network with batch normalization, they compare
objectives and personalizers, alone and combined, with sequential training.
"""

from dataclasses import replace
from math import prod
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment.schema import Training
from rampart_fl.shared.learning.data.client_data import ClientData
from rampart_fl.shared.learning.network.models import models
from rampart_fl.shared.learning.network.stacked import Stacked
from rampart_fl.shared.learning.network.vector import flatten, load
from rampart_fl.shared.learning.training.cohort import Batches, Cohort
from rampart_fl.shared.learning.training.learner import Learner
from rampart_fl.shared.learning.training.local import train
from rampart_fl.shared.learning.training.objectives import objectives, parse_terms
from rampart_fl.shared.learning.training.personalizers import personalizers
from rampart_fl.shared.learning.training.scoring import SCORINGS

NAMES, SIZES, CLASSES = ["a", "b", "c"], (7, 4, 2), 5
SHAPES = ((1, 8, 8), (1, 28, 28), (3, 32, 32), (3, 1, 200), (12,))
"""A model is trained on the first of these shapes that it accepts."""
TRAINING = Training(epochs=1, batch_size=3, learning_rate=0.05, momentum=0.5, weight_decay=0.01)
"""The last batches are smaller; one has a single sample."""


class Own(nn.Sequential):
    """A user's network."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(nn.Flatten(), nn.Linear(prod(shape), classes), nn.Softplus())


PARAMETERS: dict[str, dict[str, Any]] = {
    "module": {"path": f"{__name__}:Own"},
    "text": {"vocabulary": 30},
}


def network_of(name: str) -> tuple[Stacked, tuple[int, ...]]:
    """A model in float64, and the first shape that it accepts."""
    member = models.build(name, **PARAMETERS.get(name, {}))
    for shape in SHAPES:
        try:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(3)
                return Stacked(member.build(shape, CLASSES).double()), shape
        except ConfigurationError:
            continue
    raise AssertionError(f"{name} takes none of {SHAPES}")


def clients(shape: tuple[int, ...]) -> list[ClientData]:
    """Three clients with unequal data: images in [0, 1], vectors of whole numbers (token ids)."""
    draws = torch.Generator().manual_seed(2)

    def sample(n: int) -> tuple[Tensor, Tensor]:
        x = torch.randint(9, (n, *shape), generator=draws).double()
        x = x / 8 if len(shape) > 1 else x
        return x, torch.randint(CLASSES, (n,), generator=draws)

    return [ClientData(*sample(n), *sample(2), CLASSES) for n in SIZES]


def received(network: Stacked) -> Tensor:
    """Three models near the first one."""
    draws = torch.Generator().manual_seed(8)
    first_D = flatten(network.module)
    noise_KD = torch.randn(3, len(first_D), generator=draws, dtype=torch.float64)
    models_KD = first_D + 0.01 * noise_KD
    models_KD[:, network.spec.trainable :].abs_()
    return models_KD


def alone(learner: Learner, data: ClientData, model_D: Tensor, batches: Batches) -> Tensor:
    """The model of one client after a round in a plain torch loop."""
    module = load(learner.network.module, model_D).to(model_D.dtype).train()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.5, weight_decay=0.01)
    for index_B, weight_B in zip(batches.index_KSB[0], batches.weight_KSB[0], strict=True):
        inside_B = index_B[weight_B > 0]
        optimizer.zero_grad()
        outputs = module(data.x_train[inside_B].to(model_D.dtype))
        losses = learner.scoring.losses(outputs[None], data.y_train[inside_B][None])
        torch.autograd.backward(losses.mean())
        optimizer.step()
    after_D = flatten(module)
    module.double()
    return after_D


@pytest.mark.slow
@pytest.mark.parametrize("name", models.names())
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5)], ids=str
)
def test_batched_training_equals_a_plain_torch_loop_for_every_model(
    name: str, dtype: torch.dtype, tolerance: float
) -> None:
    network, shape = network_of(name)
    scoring = SCORINGS[models.get(name).task]
    learner = Learner(network, personalizers.parse("none"), TRAINING, scoring=scoring)
    data, models_KD = clients(shape), received(network).to(dtype)
    batches = Batches.draw(SIZES, NAMES, TRAINING, seed=5, round_=3)
    cohort = Cohort.of(data, dtype)
    trained = train(learner, cohort, batches, models_KD, {}, measure=False)
    for k, own in enumerate(NAMES):
        single = Batches.draw([SIZES[k]], [own], TRAINING, seed=5, round_=3)
        after_D = alone(learner, data[k], models_KD[k], single)
        found_D = models_KD[k] + trained.update_KD[k]
        assert torch.allclose(after_D, found_D, rtol=0, atol=tolerance)


TERMS = [(), *([name] for name in objectives.names()), objectives.names()]
TERMS_BY_PRECISION = [
    *((terms, torch.float64, 1e-9) for terms in TERMS),
    # All objectives together keep to the lower precision only if each of them does.
    *((terms, torch.float32, 1e-5) for terms in (TERMS[0], TERMS[-1])),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("terms", "dtype", "tolerance"),
    TERMS_BY_PRECISION,
    ids=[f"{' '.join(terms) or 'plain'}-{dtype}" for terms, dtype, _ in TERMS_BY_PRECISION],
)
@pytest.mark.parametrize("personalizer", personalizers.names())
def test_batched_equals_sequential_training_with_objectives_and_personalizers(
    terms: list[str], personalizer: str, dtype: torch.dtype, tolerance: float
) -> None:
    member = personalizers.parse(personalizer)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        module = nn.Sequential(
            nn.Linear(12, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, CLASSES)
        )
    network = Stacked(module.double())
    try:
        member.check(module, network.spec)
    except ConfigurationError as error:
        pytest.skip(str(error))
    learner = Learner(network, member, TRAINING, terms=parse_terms(list(terms)))
    data, models_KD = clients((12,)), received(network).to(dtype)
    personal = member.init(models_KD.flip(0))
    batches = Batches.draw(SIZES, NAMES, TRAINING, 5, 3, held_out=member.held_out)
    cohort = Cohort.of(data, dtype)
    trained = train(learner, cohort, batches, models_KD, personal, measure=False)
    for k, name in enumerate(NAMES):
        own = {key: tensor[k : k + 1] for key, tensor in personal.items()}
        batches = Batches.draw([SIZES[k]], [name], TRAINING, 5, 3, held_out=member.held_out)
        cohort = Cohort.of([data[k]], dtype)
        single = train(learner, cohort, batches, models_KD[k : k + 1], own, measure=False)
        update_D = trained.update_KD[k]
        assert torch.allclose(single.update_KD[0], update_D, rtol=0, atol=tolerance)
        for key, tensor in single.personal.items():
            assert torch.allclose(tensor[0], trained.personal[key][k], rtol=0, atol=tolerance)


def test_running_statistics_depend_on_batches_only() -> None:
    """Ditto's pull, decay and momentum do not change running statistics; only batches do."""
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, momentum=0.2), nn.Linear(4, CLASSES))
    network = Stacked(module.double())
    member = personalizers.build("ditto", **{"lambda": 2.0})
    learner = Learner(network, member, TRAINING)
    end, data = network.spec.trainable, clients((3,))[:1]
    models_1D = received(network)[:1]
    personal = member.init(models_1D + 1)
    batches = Batches.draw(SIZES[:1], NAMES[:1], TRAINING, seed=5, round_=3)
    one = replace(batches, index_KSB=batches.index_KSB[:, :1], steps_K=(1,))
    trained = train(learner, Cohort.of(data, torch.float64), one, models_1D, personal)
    for start_1D, after_1D in (
        (models_1D, models_1D + trained.update_KD),
        (personal["model"], trained.personal["model"]),
    ):
        load(module, start_1D[0]).train()(data[0].x_train[batches.index_KSB[0, 0]])
        torch.testing.assert_close(after_1D[0, end:], flatten(module)[end:], rtol=0, atol=1e-12)
