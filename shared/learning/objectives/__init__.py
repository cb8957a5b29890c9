"""Local objectives: terms that a client adds to its mean loss on every mini-batch.

A term gives its gradient at the models of all clients of a round at once; clients never mix, and a
padded sample counts for nothing. The terms of `[training] objective` add up. They are a defence of
those who keep to the rules: attackers train without them.

A term acts on the models that are trained for upload. Models that a personalizer trains beside
these take it only where its option `personal` says so.

To add one: a module here with a subclass of `Objective` under `@objectives.register("name")`, and a
test file of the same name.

Legend: K clients, B samples of a batch, N training samples, D parameters.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from rampart_fl.shared.families.registry import Member, Registry
from rampart_fl.shared.learning.cohort import Draws
from rampart_fl.shared.learning.personalizers import Batch
from rampart_fl.shared.learning.stacked import Stacked


@dataclass(frozen=True, eq=False)
class Point:
    """Where a term is evaluated.

    Args:
        network: applies K parameter vectors to K batches.
        models_KD: the models that are being trained.
        received_KD: those with which the round began.
        batch: the mini-batch of every client.
        draws: random numbers of this step, by client.
    """

    network: Stacked
    models_KD: Tensor
    received_KD: Tensor
    batch: Batch
    draws: Draws


class Objective(Member, ABC):
    """A term of the local objective."""

    weight_name: ClassVar[str] = "lambda"
    """What the parameter behind `weight` is called."""
    reads_samples: ClassVar[bool] = True
    """Whether the gradient depends on the batch; where it does, privacy clips it by sample."""
    personal: bool = False
    """Whether personal models that are trained beside the uploaded one take the term as well."""

    @property
    @abstractmethod
    def weight(self) -> float:
        """What the term is multiplied by; at 0 training is bit for bit the plain one."""

    @abstractmethod
    def gradient(self, point: Point) -> Tensor:
        """The gradient (K, D) of the weighted term; weight > 0."""

    def measure(
        self,
        network: Stacked,
        models_KD: Tensor,
        x_KN: Tensor,
        sizes: Sequence[int],
        draws: Draws,
    ) -> dict[str, Tensor]:
        """What clients report of their trained models: one number (K,) each, by name.

        Args:
            network: applies the models.
            models_KD: after the round's training.
            x_KN: every client's training samples, padded.
            sizes: how many each has.
            draws: random numbers of the round's first step.
        """
        del network, models_KD, x_KN, sizes, draws
        return {}


objectives: Registry[Objective] = Registry(
    Objective, "objective", package=__name__, group="rampart_fl.objectives"
)


def parse_terms(specs: Sequence[Any]) -> tuple[Objective, ...]:
    """The terms that an experiment lists.

    >>> parse_terms(["fedprox"])
    (FedProx(personal=False, mu=0.01),)
    """
    return tuple(objectives.parse(spec) for spec in specs)
