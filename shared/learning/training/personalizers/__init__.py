"""Personalizers: how a client trains its update and, with some methods, a personal model.

Local training calls the personalizer's method `step` for every mini-batch. A personalizer's
functions are pure and stacked: every tensor has the clients of a round as its leading dimension. An
agent calls the functions for one client at a time, and the simulator calls them for many clients at
once.

To add a personalizer, write a module in this package, and a test file with the name of the module.
The module defines a subclass of `Personalizer`, decorated with `@personalizers.register("name")`.

Code that makes clients' models on the server belongs in `rampart_fl.shared.robust.customizers`.

Legend: K clients, B samples in a batch, D parameters.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn

from rampart_fl.shared.families.registry import FamilyMember, Registry
from rampart_fl.shared.modelspec import ModelSpec


@dataclass(frozen=True, eq=False)
class Batch:
    """One mini-batch of every client.

    Args:
        x_KB: samples (K, B, *shape).
        y_KB: class numbers.
        weight_KB: each sample's weight in its client's mean loss; 0 for padding.
        whole: True if the caller knows that no client's batch is padded.
    """

    x_KB: Tensor
    y_KB: Tensor
    weight_KB: Tensor
    whole: bool = False

    def part(self, some: slice) -> "Batch":
        """The batches of the clients whose indices are in the slice `some`."""
        return replace(
            self, x_KB=self.x_KB[some], y_KB=self.y_KB[some], weight_KB=self.weight_KB[some]
        )


@dataclass(frozen=True, eq=False)
class StepState:
    """The values that a step of local training changes.

    Args:
        model_KD: the models that are being trained for upload.
        personal: the tensors (K, ...) that the clients keep from round to round, keyed by name.
        velocity: the momenta (K, D), keyed by model; the momenta are discarded after the round.
    """

    model_KD: Tensor
    personal: Mapping[str, Tensor] = field(default_factory=dict)
    velocity: Mapping[str, Tensor] = field(default_factory=dict)

    def part(self, some: slice) -> "StepState":
        """The models and the state of the clients whose indices are in the slice `some`."""
        personal = {name: tensor[some] for name, tensor in self.personal.items()}
        velocity = {name: tensor[some] for name, tensor in self.velocity.items()}
        return StepState(self.model_KD[some], personal, velocity)

    def blank(self) -> "StepState":
        """A copy with the same shapes, but with uninitialized values and without momenta."""
        personal = {name: torch.empty_like(tensor) for name, tensor in self.personal.items()}
        return StepState(torch.empty_like(self.model_KD), personal)

    def put(self, at_K: Tensor, part: "StepState") -> None:
        """Overwrites the models and the state of the clients at the indices `at_K`."""
        self.model_KD[at_K] = part.model_KD
        for name, tensor in self.personal.items():
            tensor[at_K] = part.personal[name]

    def with_personal(self, **tensors: Tensor) -> "StepState":
        """A copy in which these tensors replace the personal tensors of the same name."""
        return replace(self, personal={**self.personal, **tensors})


Offers = Iterable[tuple[Tensor, Tensor]]
"""Other clients' models, as pairs of tensors. In pair p, row k of the first tensor (K, D) is the
p-th model that the server offers to client k. Entry k of the second tensor (K,) is 1 if client k
has a p-th offer, and otherwise 0."""
Loss = Callable[[Tensor], Tensor]
"""Maps models (K, D) to losses (K,) in float64; loss k is the mean loss of model k for client k."""


class Task(Protocol):
    """The local objective and its optimizer, with the settings of the experiment."""

    @property
    def learning_rate(self) -> float:
        """Step size η."""

    def gradients(
        self, batch: Batch, *models_KD: Tensor, personal: Sequence[Tensor] = ()
    ) -> tuple[Tensor, ...]:
        """The gradient (K, D) of the objective on the batch, at each of the models.

        Args:
            batch: the samples.
            models_KD: models that are trained for upload; their objective has all terms.
            personal: models that the clients train for themselves. The objective of personal models
                is the mean loss plus the terms that have `personal` set. The gradients of personal
                models are returned last.
        """

    def descend(self, local: StepState, gradient_KD: Tensor) -> StepState:
        """Takes one optimizer step on `local.model_KD`; the step can overwrite `gradient_KD`."""

    def balanced(self) -> "Task":
        """The same task, with the balanced softmax loss for models that are trained for upload."""

    def with_reference(self, reference_KD: Tensor) -> "Task":
        """The same task, but with the given models in place of the received ones.

        Terms of the objective that pull models towards the received models use the given models.
        """

    def parameters(self, vector_KD: Tensor) -> Tensor:
        """The given vectors (K, D), but with 0 in place of every running statistic.

        Running statistics change only through the batches that the network processes.
        """

    def head(self, layer: str | None) -> Tensor:
        """A mask (D,) of the coordinates of this layer; None selects the last linear layer."""


class Personalizer(FamilyMember, ABC):
    """Defines how a client trains, and which personal model the client keeps."""

    accounted: ClassVar[bool] = True
    """Whether gradients of the models that are trained for upload are the only way in which a
    client's samples affect its upload. Differential privacy adds noise only to these gradients."""

    whole: ClassVar[bool] = True
    """True if the client trains the received model with the experiment's objective, uses all of its
    training samples, and uploads the whole change of the model. Detectors that reconstruct training
    need `whole` to be True.
    """

    uploads_all: ClassVar[bool] = True
    """False if the upload is always 0 in some coordinates, such as those of the head."""

    @property
    def simulated_only(self) -> bool:
        """Whether a client needs all clients' models; only a simulation can provide them."""
        return False

    def init(self, initial_KD: Tensor) -> dict[str, Tensor]:
        """The personal state before a client's first round, made from the first global model."""
        del initial_KD
        return {}

    def check(self, module: nn.Module, spec: ModelSpec) -> None:
        """Raises `ConfigurationError` if the method does not suit the model."""
        del module, spec

    def begin(self, received_KD: Tensor, personal: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Personal state at the beginning of a round's training."""
        del received_KD
        return personal

    @property
    def held_out(self) -> float:
        """Fraction of each client's training samples that is reserved for the method `start`."""
        return 0.0

    def start(
        self, received_KD: Tensor, personal: Mapping[str, Tensor], offers: Offers, loss: Loss
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The models (K, D) from which training starts, and values (K,) to report, keyed by name.

        Args:
            received_KD: the models as received; an upload is the trained model minus the received
                model.
            personal: personal state from the client's previous round.
            offers: other clients' models.
            loss: the mean loss on the samples held out of training.
        """
        del personal, offers, loss
        return received_KD, {}

    @abstractmethod
    def step(self, local: StepState, received_KD: Tensor, batch: Batch, task: Task) -> StepState:
        """Trains on one mini-batch, and never writes to the arguments.

        Args:
            local: models and state before the step.
            received_KD: the models with which the round began.
            batch: the samples.
            task: gradients and optimizer.
        """

    def personalized(self, model_KD: Tensor, personal: Mapping[str, Tensor]) -> Tensor | None:
        """The clients' personal models (K, D), if there are any."""
        del model_KD, personal
        return None


personalizers: Registry[Personalizer] = Registry(
    Personalizer, "personalizer", package=__name__, group="rampart_fl.personalizers"
)
