"""Models.

To add a model, write a module in this package, and a test file with the name of the module. The
module defines a subclass of `Model`, decorated with `@models.register("name")`. When many clients
train at once, a model whose layers are in one `torch.nn.Sequential` trains fastest (see
`rampart_fl.shared.learning.network.stacked`).

Code that trains a model belongs in `training`.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import nn

from rampart_fl.shared.families.registry import Member, Registry


class Model(Member, ABC):
    """An architecture, built for the shape of a sample and the number of classes."""

    task: ClassVar[str] = "classification"
    """The model's task: `classification`, or `estimation` if the model's outputs are residuals."""

    @abstractmethod
    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """A module that maps (B, *shape) to logits (B, classes).

        Raises:
            ConfigurationError: the architecture does not take samples of this shape.
        """


models: Registry[Model] = Registry(Model, "model", package=__name__, group="rampart_fl.models")
