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

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.families.registry import FamilyMember, Registry
from rampart_fl.shared.learning.network.trial import try_module


class Model(FamilyMember, ABC):
    """An architecture, built for the shape of a sample and the number of classes."""

    task: ClassVar[str] = "classification"
    """The model's task: `classification`, or `estimation` if the model's outputs are residuals."""

    @abstractmethod
    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """A module that maps (B, *shape) to logits (B, classes).

        Raises:
            ConfigurationError: the architecture does not take samples of this shape.
        """

    def checked_build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Calls `build`, and checks the module; a user's own module must also return logits.

        Raises:
            ConfigurationError: the architecture does not take samples of this shape, or the result
                is not a `torch.nn.Module`. If the model comes from another package, the module must
                also map (B, *shape) to (B, classes).
        """
        with self.own_errors():
            module: object = self.build(shape, classes)
        who = f"model {self.origin}"
        if not isinstance(module, nn.Module):
            raise ConfigurationError(
                f"{who} built a {type(module).__name__}, not a torch.nn.Module"
            )
        if self.package and self.task == "classification":
            for training in (False, True):
                try_module(module, who, shape, classes, training)
        return module


models: Registry[Model] = Registry(Model, "model", package=__name__, group="rampart_fl.models")
