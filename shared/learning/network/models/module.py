"""A user's own network, given by its import path."""

import inspect
from typing import Any

import torch
from pydantic import ConfigDict, Field
from torch import nn

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.families.importpath import load_callable
from rampart_fl.shared.learning.network.models import Model, models
from rampart_fl.shared.learning.network.trial import try_module

DROPOUTS = (
    *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d),
    *(nn.AlphaDropout, nn.FeatureAlphaDropout),
)


@models.register("module")
class UserModule(Model):
    """A `torch.nn.Module` class that the user wrote: `path = "my_package.nets:Net"`.

    All keys of the TOML table except `name` and `path` are passed to the class as keyword
    arguments. Rampart supplies the arguments `shape` (the shape of a sample) and `classes` if the
    class accepts them. The module maps (B, *shape) to logits (B, classes). When many clients train
    at once, a `torch.nn.Sequential` trains fastest; any other module runs through
    `torch.func.vmap`, or client by client. The package must also be installed on every machine that
    hosts clients. On these machines, RAMPART_TRUSTED_PACKAGES must name the package.

    >>> UserModule(path="torch.nn:Flatten").build((10,), 10)
    Flatten(start_dim=1, end_dim=-1)
    """

    model_config = ConfigDict(extra="allow")
    paper = "the user's own"
    path: str = Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$")
    """Import path of the Python module, a colon, and the name of the class."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        module = self._make(shape, classes)
        for name, layer in module.named_modules():
            if isinstance(layer, DROPOUTS) and layer.p > 0:
                raise ConfigurationError(
                    f"{self._who}: {name} draws at random in training, so agents and the simulator "
                    "would get different results; build it with p = 0"
                )
        frozen = [name for name, p in module.named_parameters() if not p.requires_grad]
        if frozen:
            raise ConfigurationError(
                f"{self._who}: every parameter is trained and uploaded, but {frozen[0]} is frozen; "
                "make it a buffer with persistent=False"
            )
        self._try(module, shape, classes)
        return module

    @property
    def _who(self) -> str:
        return f"model {self.path!r}"

    def _make(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        module = load_callable(self.path, "a model")
        if not (isinstance(module, type) and issubclass(module, nn.Module)):
            raise ConfigurationError(f"{self._who} is not a subclass of torch.nn.Module")
        takes = inspect.signature(module).parameters
        fitted = {"shape": shape, "classes": classes}
        supplied: dict[str, Any] = {key: value for key, value in fitted.items() if key in takes}
        try:
            return module(**{**supplied, **(self.model_extra or {})})
        except Exception as error:  # The user's code may raise anything.
            raise ConfigurationError(
                f"{self._who} cannot be built: {type(error).__name__}: {error}; "
                f"it takes {inspect.signature(module)}"
            ) from None

    def _try(self, module: nn.Module, shape: tuple[int, ...], classes: int) -> None:
        """Refuses a module that draws random numbers, or that does not return logits."""
        for training in (False, True):
            before = torch.get_rng_state()
            try_module(module, self._who, shape, classes, training)
            if not torch.equal(before, torch.get_rng_state()):
                raise ConfigurationError(
                    f"{self._who} draws at random in forward, so agents and the simulator would "
                    "get different results"
                )
