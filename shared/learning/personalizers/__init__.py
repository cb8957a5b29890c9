"""Personalizers: what a client trains besides its update, and how.

A personalizer is the one definition of local training. Its functions are pure and stacked: every
tensor has the clients of a round in front, so that an agent runs them for its one client and the
simulator for all clients at once.

To add one: a module here with a subclass of `Personalizer` under `@personalizers.register("name")`,
and a test file of the same name.

Legend: K clients, B samples of a batch, D parameters.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

from torch import Tensor, nn

from rampart_fl.shared.families.registry import Member, Registry
from rampart_fl.shared.modelspec import ModelSpec


@dataclass(frozen=True, eq=False)
class Batch:
    """One mini-batch of every client.

    Args:
        x_KB: samples (K, B, *shape).
        y_KB: class numbers.
        weight_KB: a sample's share of its client's mean loss; 0 where a ragged batch is padded.
        whole: whether no client's batch is known to be padded.
    """

    x_KB: Tensor
    y_KB: Tensor
    weight_KB: Tensor
    whole: bool = False

    def part(self, some: slice) -> "Batch":
        """Those of neighbours among the clients."""
        return replace(
            self, x_KB=self.x_KB[some], y_KB=self.y_KB[some], weight_KB=self.weight_KB[some]
        )


@dataclass(frozen=True, eq=False)
class Local:
    """What a step of local training changes.

    Args:
        model_KD: the models that are being trained for upload.
        personal: tensors (K, ...) that stay with the clients from round to round, by name.
        velocity: momenta (K, D) by model, forgotten after the round.
    """

    model_KD: Tensor
    personal: Mapping[str, Tensor] = field(default_factory=dict)
    velocity: Mapping[str, Tensor] = field(default_factory=dict)

    def part(self, some: slice) -> "Local":
        """Those of neighbours among the clients."""
        personal = {name: tensor[some] for name, tensor in self.personal.items()}
        velocity = {name: tensor[some] for name, tensor in self.velocity.items()}
        return Local(self.model_KD[some], personal, velocity)

    def with_personal(self, **tensors: Tensor) -> "Local":
        """The same with some personal tensors replaced."""
        return replace(self, personal={**self.personal, **tensors})


Offers = Iterable[tuple[Tensor, Tensor]]
"""Other clients' models, place by place: (K, D), and 1 for each client that has one there, else 0
(K,)."""
Loss = Callable[[Tensor], Tensor]
"""Models (K, D) -> each client's mean loss of its own (K,), in float64."""


class Task(Protocol):
    """The local objective and its optimizer, as the experiment sets them."""

    @property
    def learning_rate(self) -> float:
        """Step size η."""

    def gradients(
        self, batch: Batch, *models_KD: Tensor, personal: Sequence[Tensor] = ()
    ) -> tuple[Tensor, ...]:
        """∇ (K, D) of the objective on the batch at each of the models; the loss in one pass.

        Args:
            batch: the samples.
            models_KD: models that are trained for upload, which take every term of the objective.
            personal: models that the clients train for themselves, which take the mean loss and
                those terms that say so; their gradients come last.
        """

    def descend(self, local: Local, gradient_KD: Tensor) -> Local:
        """One optimizer step on `local.model_KD`; the gradient is used up."""

    def balanced(self) -> "Task":
        """The same with each client's balanced softmax for the models that are uploaded."""

    def parameters(self, vector_KD: Tensor) -> Tensor:
        """The vectors (K, D) with 0 for running statistics, which only batches move."""

    def head(self, layer: str | None) -> Tensor:
        """Which coordinates are that layer, bool (D,); the last linear one when None."""


class Personalizer(Member, ABC):
    """How a client trains and what model it keeps for itself."""

    accounted: ClassVar[bool] = True
    """Whether what is uploaded depends on a client's samples through the gradients at uploaded
    models alone: those are what differential privacy clips, noises and accounts for."""

    whole: ClassVar[bool] = True
    """Whether an upload is what training moved of the received model, all of it, on the client's
    samples as they are."""

    @property
    def simulated_only(self) -> bool:
        """Whether clients see each other's models, as they do in one process only."""
        return False

    def init(self, initial_KD: Tensor) -> dict[str, Tensor]:
        """Personal state before a client's first round, from the first global model."""
        del initial_KD
        return {}

    def check(self, module: nn.Module, spec: ModelSpec) -> None:
        """Raises `ConfigurationError` where the method does not suit a model."""
        del module, spec

    def begin(self, received_KD: Tensor, personal: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Personal state with which a round of training begins."""
        del received_KD
        return personal

    @property
    def held_out(self) -> float:
        """Share of each client's training samples that it does not train on, for `start`."""
        return 0.0

    def start(
        self, received_KD: Tensor, personal: Mapping[str, Tensor], offers: Offers, loss: Loss
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The models (K, D) that training starts from, and numbers (K,) to report, by name.

        Args:
            received_KD: the models that uploads are relative to.
            personal: state from the last round.
            offers: other clients' models, one place after the other.
            loss: the mean loss on the samples held out of training.
        """
        del personal, offers, loss
        return received_KD, {}

    @abstractmethod
    def step(self, local: Local, received_KD: Tensor, batch: Batch, task: Task) -> Local:
        """One mini-batch of training; never writes to its arguments.

        Args:
            local: models and state so far.
            received_KD: the models with which the round began.
            batch: the samples.
            task: gradients and optimizer.
        """

    def personalized(self, model_KD: Tensor, personal: Mapping[str, Tensor]) -> Tensor | None:
        """The models (K, D) that the clients keep for themselves, if there are any."""
        del model_KD, personal
        return None


personalizers: Registry[Personalizer] = Registry(
    Personalizer, "personalizer", package=__name__, group="rampart_fl.personalizers"
)
