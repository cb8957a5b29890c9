"""A sequential reference of training that uses only `torch.nn` and `torch.autograd`.

Legend: D parameters.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from rampart_fl.shared.learning.data.client_data import ClientData
from rampart_fl.shared.learning.network.vector import load
from rampart_fl.shared.learning.training.cohort import Batches, Cohort
from rampart_fl.shared.learning.training.learner import Learner
from rampart_fl.shared.learning.training.local import CohortResult, train
from rampart_fl.shared.seeding import generator

NAMES = ("a", "b", "c")
SEED, ROUND = 5, 3
Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]


@dataclass
class Plain:
    """One personalizer under test: the batched round, and the inputs of a sequential reference."""

    learner: Learner
    clients: list[ClientData]

    def __post_init__(self) -> None:
        draws = torch.Generator().manual_seed(8)
        shape = len(self.clients), self.learner.spec.dim
        noise_KD = torch.randn(shape, generator=draws, dtype=torch.float64)
        self.received_KD = self.learner.initial_model() + 0.1 * noise_KD
        self.personal = self.learner.personalizer.init(self.received_KD.flip(0))
        self.head_D = torch.tensor([name.startswith("output.") for name in self.coordinates()])

    def coordinates(self) -> Iterator[str]:
        """The tensor name of each coordinate."""
        for name, start, stop in self.learner.spec.layout:
            yield from [name] * (stop - start)

    def at_once(self) -> CohortResult:
        """One batched round of all clients."""
        sizes = [len(data.y_train) for data in self.clients]
        batches = Batches.draw(sizes, NAMES, self.learner.training, SEED, ROUND)
        cohort = Cohort.of(self.clients, torch.float64)
        return train(self.learner, cohort, batches, self.received_KD, self.personal)

    def batches(self, k: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The mini-batches of client k."""
        draws, data = generator(SEED, "batches", NAMES[k], ROUND), self.clients[k]
        for _ in range(self.learner.training.epochs):
            order = torch.randperm(len(data.y_train), generator=draws)
            for at in order.split(self.learner.training.batch_size):
                yield data.x_train[at], data.y_train[at]

    def gradient(self, model_D: Tensor, loss: Loss, x: Tensor, y: Tensor) -> Tensor:
        """The gradient of a loss at a parameter vector (D,)."""
        module = load(copy.deepcopy(self.learner.network.module), model_D)
        loss(module, x, y).backward()
        result = dict(module.named_parameters())
        grads = [result[tensor.name].grad for tensor in self.learner.spec.tensors]
        return torch.cat([grad.flatten() for grad in grads if grad is not None])


@pytest.fixture
def plain(
    make_learner: Callable[..., Learner], clients: list[ClientData]
) -> Callable[[object], Plain]:
    """Builds the test setup of a personalizer."""
    return lambda personalizer: Plain(make_learner(personalizer=personalizer), clients)
