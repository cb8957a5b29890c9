"""Local objectives: terms that a client adds to its mean loss on every mini-batch.

A term computes its gradient for all clients of a round at once. One client's gradient never depends
on another client's data, and padded samples are ignored. All terms in the list `[training]
objective` are added up. Objective terms are a defence that honest clients use; attackers train
without such terms.

A term acts on the models that are trained for upload. If the term's option `personal` is set, the
term also acts on the personal models of a personalizer.

To add a term, write a module in this package, and a test file with the name of the module. The
module defines a subclass of `Objective`, decorated with `@objectives.register("name")`.

Code that takes the training steps belongs in `training`.

Legend: K clients, B samples in a batch, N training samples, D parameters.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.families.registry import FamilyMember, Registry
from rampart_fl.shared.learning.network.stacked import Stacked
from rampart_fl.shared.learning.training.cohort import StepRandomness
from rampart_fl.shared.learning.training.personalizers import Batch
from rampart_fl.shared.runtime.device import to_device


@dataclass(frozen=True, eq=False)
class Point:
    """The models and samples at which a term is evaluated.

    Args:
        network: applies K parameter vectors to K batches.
        models_KD: the models that are being trained.
        received_KD: the models with which the round began.
        batch: the mini-batch of every client.
        draws: each client's random numbers for this step.
    """

    network: Stacked
    models_KD: Tensor
    received_KD: Tensor
    batch: Batch
    draws: StepRandomness

    def part(self, clients: Sequence[int]) -> "Point":
        """A copy with only the clients at these positions."""
        at_K = to_device(clients, self.models_KD.device, torch.long)
        batch = self.batch
        return replace(
            self,
            models_KD=self.models_KD[at_K],
            received_KD=self.received_KD[at_K],
            batch=replace(
                batch,
                x_KB=batch.x_KB[at_K],
                y_KB=batch.y_KB[at_K],
                weight_KB=batch.weight_KB[at_K],
            ),
            draws=replace(
                self.draws,
                names=tuple(self.draws.names[k] for k in clients),
                sizes=tuple(self.draws.sizes[k] for k in clients),
            ),
        )


class Objective(FamilyMember, ABC):
    """A term of the local objective."""

    weight_name: ClassVar[str] = "lambda"
    """Name of the parameter that determines `weight`."""
    reads_samples: ClassVar[bool] = True
    """Whether the gradient depends on the batch; if so, `PrivateTask` clips each sample's
    gradient."""
    personal: bool = False
    """Whether the term acts on the client's personal model, in addition to the model that the
    client uploads."""

    @property
    @abstractmethod
    def weight(self) -> float:
        """The term's factor; a factor of 0 leaves training unchanged to the last bit."""

    @abstractmethod
    def gradient(self, point: Point) -> Tensor:
        """The gradient (K, D) of the weighted term; called only if the weight is positive."""

    def checked_gradient(self, point: Point) -> Tensor:
        """Calls `gradient`, and checks the shape of the result.

        Raises:
            ConfigurationError: the gradient does not have the shape of the models.
        """
        with self.own_errors():
            given: Any = self.gradient(point)
        wanted = tuple(point.models_KD.shape)
        if not isinstance(given, Tensor) or given.shape != wanted:
            shown = f"shape {tuple(given.shape)}" if isinstance(given, Tensor) else repr(given)
            raise ConfigurationError(
                f"objective {self.origin} returned a gradient of {shown}, not of shape {wanted}"
            )
        return given

    def measure(
        self,
        network: Stacked,
        models_KD: Tensor,
        x_KN: Tensor,
        sizes: Sequence[int],
        draws: StepRandomness,
    ) -> dict[str, Tensor]:
        """Measures the trained models; clients report the results, tensors (K,) keyed by name.

        Args:
            network: applies the models.
            models_KD: the models after the round's training.
            x_KN: every client's training samples, padded.
            sizes: number of training samples of each client.
            draws: the source of random numbers; `train` passes the source of the round's first
                step.
        """
        del network, models_KD, x_KN, sizes, draws
        return {}

    def checked_measure(
        self,
        network: Stacked,
        models_KD: Tensor,
        x_KN: Tensor,
        sizes: Sequence[int],
        draws: StepRandomness,
    ) -> Mapping[str, Tensor]:
        """Calls `measure`, and checks the result.

        Raises:
            ConfigurationError: the result does not consist of one number per client and name.
        """
        with self.own_errors():
            given: Any = self.measure(network, models_KD, x_KN, sizes, draws)
        if not isinstance(given, Mapping):
            raise ConfigurationError(
                f"objective {self.origin} measured {given!r}, not a mapping of tensors"
            )
        for name, column in given.items():
            if not isinstance(column, Tensor) or column.shape != (len(models_KD),):
                raise ConfigurationError(
                    f"objective {self.origin} measured {column!r} as {name!r}, not one number for "
                    f"each of the {len(models_KD)} clients"
                )
        return given


objectives: Registry[Objective] = Registry(
    Objective, "objective", package=__name__, group="rampart_fl.objectives"
)


def parse_terms(specs: Sequence[Any]) -> tuple[Objective, ...]:
    """The terms that an experiment lists.

    >>> parse_terms(["fedprox"])
    (FedProx(personal=False, mu=0.01),)
    """
    return tuple(objectives.parse(spec) for spec in specs)
