"""Models.

To add one: a module here with a subclass of `Model` under `@models.register("name")`, and a test
file of the same name. Layers in one `torch.nn.Sequential` train fastest when many clients train at
once (see `rampart_fl.shared.learning.stacked`).
"""

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import nn

from rampart_fl.shared.families.registry import Member, Registry


class Model(Member, ABC):
    """An architecture, fitted to the shape of a sample and the number of classes."""

    task: ClassVar[str] = "classification"
    """What it is for: `classification`, or `estimation` where its outputs are residuals."""

    @abstractmethod
    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """A module from (B, *shape) to logits (B, classes).

        Raises:
            ConfigurationError: a sample of that shape does not fit.
        """


models: Registry[Model] = Registry(Model, "model", package=__name__, group="rampart_fl.models")
