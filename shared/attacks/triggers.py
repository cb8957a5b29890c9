"""Backdoors: a trigger in some training images, and the attack's success on test images.

Legend: S samples, H rows and W columns of pixels.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from rampart_fl.shared.attacks.base import DataAttack
from rampart_fl.shared.errors import ConfigurationError, refusal
from rampart_fl.shared.experiment.schema import Experiment, Training
from rampart_fl.shared.runtime.device import to_device

Pixels = tuple[tuple[int, int], ...]
"""Positions (row, column) of pixels."""


class Backdoor(DataAttack):
    """Stamps a trigger on some of the attacker's images and labels these images `target`.

    The images must be (S, H, W) or (S, channels, H, W); the trigger is stamped on all channels.
    """

    target: int = Field(ge=0)
    """Class that models should predict for images with the trigger."""
    poison_rate: float = Field(ge=0, le=1)
    """Share of the attacker's samples that get the trigger. These samples are drawn without
    replacement."""
    value: float = 1.0
    """Value of the trigger's pixels."""
    scale: float = Field(default=1.0, gt=0)
    """Factor that multiplies the uploaded update, for model replacement; 1 changes nothing."""
    epochs: int | None = Field(default=None, ge=1)
    """Number of local epochs in a round with poisoned data; by default, the same number as for
    honest clients."""
    learning_rate: float | None = Field(default=None, gt=0)
    """Learning rate in a round with poisoned data; by default, the experiment's learning rate."""

    @abstractmethod
    def part(self, attacker: int) -> Pixels:
        """The pixels that one attacker stamps on its training images."""

    @abstractmethod
    def whole(self) -> Pixels:
        """The pixels of the whole trigger, which is stamped on test images."""

    def apply(
        self, x: Tensor, y: Tensor, classes: int, draws: torch.Generator, attacker: int = 0
    ) -> tuple[Tensor, Tensor]:
        self.require_fit(tuple(x.shape[1:]), classes)
        picks = torch.randperm(len(y), generator=draws)[: round(self.poison_rate * len(y))]
        poisoned_x, poisoned_y = x.clone(), y.clone()
        poisoned_x[picks] = self._stamp(x[picks], self.part(attacker))
        poisoned_y[picks] = self.target
        return poisoned_x, poisoned_y

    def upload(self, own_FD: Tensor) -> Tensor:
        return own_FD * self.scale

    def training(self, usual: Training) -> Training:
        own = {"epochs": self.epochs, "learning_rate": self.learning_rate}
        return usual.model_copy(update={key: v for key, v in own.items() if v is not None})

    def triggered(self, x: Tensor, y: Tensor) -> Tensor:
        """Test images of all classes except the target class, each with the whole trigger on it.

        The method `success` computes the attack's success rate from the predictions on the returned
        images. Images of the target class are left out, because predicting their class correctly is
        not a success of the attack.
        """
        return self.with_trigger(x[y != self.target])

    def with_trigger(self, x: Tensor) -> Tensor:
        """Copies of the images `x`, each with the whole trigger on it, for use at test time."""
        return self._stamp(x, self.whole())

    def success(self, predicted: Tensor) -> float | None:
        """Fraction of triggered images classified as the target; None if there are no images."""
        return float((predicted == self.target).double().mean()) if len(predicted) else None

    def require_fit(self, shape: tuple[int, ...], classes: int) -> None:
        """Refuses a task that the backdoor cannot attack.

        Args:
            shape: shape of a sample.
            classes: number of classes of the task.
        Raises:
            ConfigurationError: the samples are not images, the trigger is larger than an image, or
                the target is not a class.
        """
        self._require_room(shape)
        if self.target >= classes:
            raise ConfigurationError(
                f"{self.name}: there is no class {self.target}; the task has {classes} classes"
            )

    def _require_room(self, shape: tuple[int, ...]) -> None:
        if len(shape) not in (2, 3):
            raise ConfigurationError(f"{self.name} needs images, not samples of shape {shape}")
        # The whole trigger must fit, because the whole trigger is stamped on test images.
        last_row, last_column = (max(axis) for axis in zip(*self.whole(), strict=True))
        height, width = shape[-2:]
        if last_row >= height or last_column >= width:
            raise ConfigurationError(
                f"{self.name}: a trigger of {last_row + 1}x{last_column + 1} pixels "
                f"does not fit into {height}x{width} pixels"
            )

    def _stamp(self, x: Tensor, pixels: Pixels) -> Tensor:
        self._require_room(tuple(x.shape[1:]))
        shown_HW = torch.zeros(x.shape[-2:], dtype=torch.bool)
        shown_HW[tuple(torch.tensor(axis) for axis in zip(*pixels, strict=True))] = True
        return x.masked_fill(to_device(shown_HW, x.device), self.value)


def parse_trigger(spec: Mapping[str, Any] | None) -> Backdoor | None:
    """Builds the backdoor that an `evaluation` table names; clients measure its success.

    The result is None if the table names no trigger.

    >>> parse_trigger({"name": "dba", "width": 3}).target
    2
    """
    from rampart_fl.shared.attacks.data import attacks

    if spec is None:
        return None
    attack = attacks.parse(spec)
    if not isinstance(attack, Backdoor):
        raise ConfigurationError(f"{attack.name} has no trigger, so its success cannot be measured")
    return attack


def unfit(experiment: Experiment, shape: tuple[int, ...], classes: int) -> list[str]:
    """Error messages about backdoors of the experiment that cannot attack its task.

    These are the backdoor whose success clients measure, and the attackers' backdoors. The task
    has samples of this shape and this number of classes.
    """
    from rampart_fl.shared.attacks.data import attacks

    named = [experiment.evaluation.trigger, *(group.data_attack for group in experiment.attackers)]
    parsed = [attacks.parse(spec) for spec in named if spec is not None]
    backdoors = [attack for attack in parsed if isinstance(attack, Backdoor)]
    return [why for one in backdoors for why in refusal(one.require_fit, shape, classes)]
