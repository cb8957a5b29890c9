"""Data sets.

To add one: a module here with a subclass of `Dataset` under `@datasets.register("name")`, and a
test file of the same name.

Legend: n samples.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from rampart_fl.shared.families.registry import Member, Registry
from rampart_fl.shared.learning.arrays import fitted


@dataclass(frozen=True, eq=False)
class Samples:
    """Labelled samples.

    Args:
        x: (n, *shape), float32, or uint8 as files hold it; `take` gives what a model takes. Images
            have their channels first.
        y: class numbers, long (n,).
        classes: number of classes.
        groups: the natural client (user, writer) of every sample, long (n,), where there is one.
        held_out: which samples (n,) are for testing, where the data set itself says so.
        scale: what `x` is divided by.
    """

    x: Tensor
    y: Tensor
    classes: int
    groups: Tensor | None = None
    held_out: Tensor | None = None
    scale: float = 1.0

    def take(self, positions: Tensor | slice = slice(None)) -> Tensor:
        """Some of the samples as float32 (k, *shape), images in [0, 1].

        >>> pixels = torch.tensor([[0], [255]], dtype=torch.uint8)
        >>> Samples(pixels, torch.zeros(2), classes=1, scale=255).take().tolist()
        [[0.0], [1.0]]
        """
        x = self.x[positions].to(torch.float32, memory_format=torch.contiguous_format)
        return x / self.scale if self.scale != 1 else x


@dataclass(frozen=True)
class Source:
    """Where a data set comes from.

    Args:
        kind: "Rampart" (it needs no file), "RAMPART_DATA_DIR", "cache", "OpenML", or "you" if the
            file must be brought.
        place: the file, or where it would be had.
        present: whether it can be loaded without a network.
    """

    kind: str
    place: str
    present: bool


class Dataset(Member, ABC):
    """A data set; its shape and classes are known before it is loaded (a server never loads it)."""

    licence: ClassVar[str] = ""
    """Terms of use, as far as they are known."""
    total: ClassVar[int] = 0
    """Samples of the whole data set, of which a file may hold a part; 0: as many as are asked."""

    scale: ClassVar[float] = 255.0
    """What whole numbers in a file of samples are divided by."""

    task: ClassVar[str] = "classification"
    """What it is for; see `rampart_fl.shared.learning.scoring`."""

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
        """Where `load` would find it now."""
        return Source("Rampart", "needs no file", True)

    def fetch(self) -> Path | None:
        """Sees to it that `load` needs no network; the path of its file, if it has one.

        Raises:
            ConfigurationError: the data set cannot be had; says what to do.
        """
        return None

    def features(self, array: np.ndarray, what: str) -> Tensor:
        """Samples (n, *shape) of a file as `Samples.x` keeps them: bytes, or float32.

        Images without a channel get one, and channels may stand last.

        Args:
            array: as the file holds them.
            what: names them in messages.
        Raises:
            ConfigurationError: another shape, numbers that are not finite, no numbers at all.
        """
        x = fitted(array, self.shape, what)
        return x / self.scale if array.dtype.kind in "ui" and x.dtype != torch.uint8 else x

    def prepared(self, array: np.ndarray, what: str) -> Tensor:
        """Samples float32 (n, *shape) of a file as a model takes them."""
        x = self.features(array, what)
        if x.dtype == torch.uint8:
            x = x / self.scale
        return x.to(torch.float32, memory_format=torch.contiguous_format)

    def drawn(self, seed: int) -> Samples | None:
        """The samples of one experiment, where they are drawn anew for every seed."""
        del seed
        return None


datasets: Registry[Dataset] = Registry(
    Dataset, "data set", package=__name__, group="rampart_fl.datasets"
)
