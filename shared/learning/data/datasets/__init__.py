"""Data sets.

To add a data set, write a module in this package, and a test file with the name of the module. The
module defines a subclass of `Dataset`, decorated with `@datasets.register("name")`.

Code that divides a data set among clients belongs in `partitions`.

Legend: n samples.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from rampart_fl.shared.families.registry import FamilyMember, Registry
from rampart_fl.shared.learning.data.arrays import as_samples


@dataclass(frozen=True, eq=False)
class Samples:
    """Labelled samples.

    Args:
        x: the samples (n, *shape) as float32 or integers, for example the uint8 pixels of a file.
            The method `take` converts samples to a model's input. Images have their channels first.
        y: class numbers, long (n,).
        classes: number of classes.
        groups: the natural client (user, writer) of every sample, long (n,), if the data set has
            natural clients.
        held_out: mask (n,) of the test samples, if the data set has a predefined split.
        scale: the number by which `take` divides `x`.
        standardized: whether every feature must be rescaled to mean 0 and standard deviation 1 over
            the clients' training samples.
    """

    x: Tensor
    y: Tensor
    classes: int
    groups: Tensor | None = None
    held_out: Tensor | None = None
    scale: float = 1.0
    standardized: bool = False

    def take(self, positions: Tensor | slice = slice(None)) -> Tensor:
        """The k samples at the given positions as float32 (k, *shape); images are in [0, 1].

        >>> pixels = torch.tensor([[0], [255]], dtype=torch.uint8)
        >>> Samples(pixels, torch.zeros(2), classes=1, scale=255).take().tolist()
        [[0.0], [1.0]]
        """
        x = self.x[positions].to(torch.float32, memory_format=torch.contiguous_format)
        return x / self.scale if self.scale != 1 else x


Arrived = Callable[[int, int], None]
"""A function that is called with the number of rows read so far and the total number of rows."""


def no_progress(rows: int, total: int) -> None:
    """Reports no progress."""


@dataclass(frozen=True)
class Source:
    """Where a data set comes from.

    Args:
        kind: "Rampart" (no file is needed), "RAMPART_DATA_DIR", "cache", "OpenML", or "you" if the
            user must provide the file.
        place: the file, or the place where the file can be obtained.
        present: whether the data set can be loaded without a network connection.
    """

    kind: str
    place: str
    present: bool


class Dataset(FamilyMember, ABC):
    """A data set. Servers can read a data set's shape and classes without loading samples."""

    licence: ClassVar[str] = ""
    """Terms of use, as far as they are known."""
    total: ClassVar[int] = 0
    """Number of samples of the whole data set; a file may hold only a part of them. `total` is 0 if
    a parameter of the data set determines the number of samples."""

    scale: ClassVar[float] = 255.0
    """Number by which integer samples from a file are divided."""

    discrete: ClassVar[bool] = False
    """Whether samples are rows of token ids; a mean of such samples has no meaning."""

    task: ClassVar[str] = "classification"
    """The task that the data set is for; see `rampart_fl.shared.learning.training.scoring`."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample."""

    @property
    @abstractmethod
    def classes(self) -> int:
        """Number of classes."""

    @abstractmethod
    def load(self) -> Samples:
        """All samples."""

    def source(self) -> Source:
        """The place from which `load` would read the data set now."""
        return Source("Rampart", "needs no file", True)

    def fetch(self, arrived: Arrived = no_progress) -> Path | None:
        """Ensures that `load` works offline; returns the path of the data set's file, if any.

        Args:
            arrived: a function that is called repeatedly while a file is downloaded or read.
        Raises:
            ConfigurationError: the data set is not available; the message says what to do.
        """
        return None

    def features(self, array: np.ndarray, what: str) -> Tensor:
        """Samples (n, *shape) from a file, in the dtype for `Samples.x`: uint8 or float32.

        A missing channel dimension is added, and channels-last images are transposed.

        Args:
            array: the array in the file.
            what: name of the array in error messages.
        Raises:
            ConfigurationError: the array does not have the data set's shape, or has values that are
                not finite numbers.
        """
        x = as_samples(array, self.shape, what)
        return x / self.scale if array.dtype.kind in "ui" and x.dtype != torch.uint8 else x

    def prepared(self, array: np.ndarray, what: str) -> Tensor:
        """Samples (n, *shape) from a file, as float32 inputs for a model."""
        x = self.features(array, what)
        if x.dtype == torch.uint8:
            x = x / self.scale
        return x.to(torch.float32, memory_format=torch.contiguous_format)

    def draw(self, seed: int) -> Samples | None:
        """The samples drawn from this seed; None if the data set does not depend on a seed."""
        del seed
        return None


datasets: Registry[Dataset] = Registry(
    Dataset, "data set", package=__name__, group="rampart_fl.datasets"
)
