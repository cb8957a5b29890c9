"""The contract of all models: logits of the right shape, one vector, equal stacked logits."""

from math import prod

import pytest
import torch
from torch import Tensor, nn

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.network.models import models
from rampart_fl.shared.learning.network.stacked import Stacked
from rampart_fl.shared.learning.network.vector import flatten, load


class Own(nn.Module):
    """A user's network that has no stacked form of its own."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.inner = nn.Linear(prod(shape), 5)
        self.outer = nn.Linear(5, classes)

    def forward(self, x: Tensor) -> Tensor:
        h = self.inner(x.flatten(1)).tanh()
        logits: Tensor = self.outer(h + h.square())
        return logits


PARAMETERS = {"module": {"path": f"{__name__}:Own"}}
"""Parameters of the members that cannot be built by name alone."""
SHAPES = ((1, 8, 8), (3, 32, 32), (3, 1, 200), (68,))


CLASSIFIERS = [n for n in models.names() if models.get(n).task == "classification"]


@pytest.fixture(params=[(name, shape) for name in CLASSIFIERS for shape in SHAPES], ids=str)
def network(request: pytest.FixtureRequest) -> tuple[Stacked, tuple[int, ...]]:
    name, shape = request.param
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            module = models.build(name, **PARAMETERS.get(name, {})).build(shape, 7)
    except ConfigurationError as error:
        assert str(shape) in str(error)  # A refusal names the shape.
        pytest.skip(str(error))
    return Stacked(module.double()), shape


@pytest.fixture
def models_KD(network: tuple[Stacked, tuple[int, ...]]) -> Tensor:
    """Two models near the first one, with running statistics that are not negative."""
    first_D, draws = flatten(network[0].module), torch.Generator().manual_seed(1)
    noise_KD = torch.randn(2, len(first_D), generator=draws, dtype=torch.float64)
    end = network[0].spec.trainable
    models_KD = first_D + 0.1 * noise_KD
    models_KD[:, end:] = models_KD[:, end:].abs()
    return models_KD


def test_stacked_logits_equal_the_logits_of_single_models(
    network: tuple[Stacked, tuple[int, ...]], models_KD: Tensor
) -> None:
    stacked, shape = network
    draws = torch.Generator().manual_seed(2)
    x_KB = 5 * torch.rand(2, 3, *shape, generator=draws, dtype=torch.float64)
    logits = stacked.logits(models_KD, x_KB)
    assert logits.shape == (2, 3, 7)
    for k in range(2):
        expected = load(stacked.module, models_KD[k]).eval()(x_KB[k])
        assert torch.allclose(logits[k], expected, rtol=0, atol=1e-10)


def test_vector_round_trip_preserves_the_whole_module(
    network: tuple[Stacked, tuple[int, ...]], models_KD: Tensor
) -> None:
    stacked, _ = network
    assert torch.equal(flatten(load(stacked.module, models_KD[1])), models_KD[1])
    parameters = sum(p.numel() for p in stacked.module.parameters())
    assert stacked.spec.trainable == parameters
    assert stacked.spec.tensors == tuple(sorted(stacked.spec.tensors, key=lambda t: t.name))
