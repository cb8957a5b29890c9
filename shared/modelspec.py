"""The layout of a model as a vector: its tensors and their order. This module needs no torch.

Legend: D elements of the whole vector.
"""

from collections.abc import Iterable
from functools import cached_property
from math import prod

from pydantic import BaseModel, ConfigDict

STATISTIC = "~"
"""First character of the names of running statistics (the means and variances of batch norm).

Tensors are sorted by name. Parameters have the names of Python attributes, which sort before `~`,
so running statistics come after all parameters."""

Layout = tuple[tuple[str, int, int], ...]
"""The place of each tensor in a vector: its name, its first coordinate, and its last coordinate
plus 1."""


class TensorSpec(BaseModel):
    """One named tensor of a model."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)


class ModelSpec(BaseModel):
    """The tensors of a model, in the order in which a vector (D,) holds them.

    Tensors are ordered by name. The safetensors library also orders tensors of one dtype by name.
    Parameters come first; running statistics follow, under names that begin with `~`.

    >>> spec = ModelSpec.of([("weight", (2, 3)), ("bias", (2,))])
    >>> spec.dim, spec.layout
    (8, (('bias', 0, 2), ('weight', 2, 8)))
    >>> spec = ModelSpec.of([("norm.weight", (2,)), ("~norm.running_var", (2,))])
    >>> spec.trainable, spec.statistics
    (2, (('~norm.running_var', 2, 4),))
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    tensors: tuple[TensorSpec, ...]

    @staticmethod
    def of(shapes: Iterable[tuple[str, Iterable[int]]]) -> "ModelSpec":
        """Makes a spec from (name, shape) pairs, such as a module's named parameters."""
        return ModelSpec(
            tensors=tuple(
                TensorSpec(name=name, shape=tuple(shape)) for name, shape in sorted(shapes)
            )
        )

    @cached_property
    def dim(self) -> int:
        """Number D of coordinates: all parameters and all running statistics."""
        return sum(tensor.size for tensor in self.tensors)

    @cached_property
    def layout(self) -> Layout:
        """(name, start, stop) of every tensor in the vector."""
        places, start = [], 0
        for tensor in self.tensors:
            places.append((tensor.name, start, start + tensor.size))
            start += tensor.size
        return tuple(places)

    @cached_property
    def parameters(self) -> Layout:
        """The layout of the parameters, without the running statistics."""
        return tuple(place for place in self.layout if not place[0].startswith(STATISTIC))

    @cached_property
    def statistics(self) -> Layout:
        """The layout of the running statistics, which are the last coordinates of the vector."""
        return self.layout[len(self.parameters) :]

    @cached_property
    def trainable(self) -> int:
        """Number of parameters; norms and distances ignore the other coordinates."""
        return self.parameters[-1][2] if self.parameters else 0
