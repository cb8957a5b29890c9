"""Data sets that each come from one .npz file.

A file has x_train, y_train, x_test and y_test. Some data sets have natural clients, such as users.
The files of these data sets also have group_train and group_test, with the number of each sample's
natural client. Integer images are scaled to [0, 1]; channels may be the last dimension. Rampart
looks for the file in the folder RAMPART_DATA_DIR, then in the cache. The cache is the folder
RAMPART_DATA_CACHE or, by default, the operating system's folder for caches. If the file is in
neither folder, there are two other sources. Some data sets are made from the publisher's original
file in RAMPART_DATA_DIR, and others are downloaded from OpenML. Rampart stores the resulting .npz
file in the cache.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from rampart_fl.shared.errors import ConfigurationError, Unavailable
from rampart_fl.shared.learning.data.arrays import ARRAYS, PARTS, archive, labels, read
from rampart_fl.shared.learning.data.datasets import Arrived, Dataset, Samples, Source, no_progress
from rampart_fl.shared.runtime import caches, durable

VARIABLE = "RAMPART_DATA_DIR"
CACHE = "RAMPART_DATA_CACHE"


@dataclass(frozen=True)
class Original:
    """The name of a publisher's own file, and a function that reads the arrays from it."""

    name: str
    read: Callable[[Path, Arrived], dict[str, np.ndarray]]


class FileDataset(Dataset):
    """A data set in the file NAME.npz; `load` returns training samples first, then test samples."""

    sample: ClassVar[tuple[int, ...]]
    labels: ClassVar[int]
    openml: ClassVar[int] = 0
    """The data set's number at OpenML; 0 if OpenML does not have the data set."""
    train: ClassVar[int] = 0
    """Number of training rows, which are the first rows of OpenML's table."""
    original: ClassVar[Original | None] = None
    """The publisher's own file, if the data set can be made from it."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.sample

    @property
    def classes(self) -> int:
        return self.labels

    def source(self) -> Source:
        own = _folder(VARIABLE)
        for kind, folder in ((VARIABLE, own), ("cache", cache())):
            if folder is not None and (folder / self._file).is_file():
                return Source(kind, str(folder / self._file), True)
        if own is not None and self.original and (own / self.original.name).is_file():
            return Source(VARIABLE, str(own / self.original.name), True)
        if self.openml:
            return Source("OpenML", f"data set {self.openml}", False)
        return Source("you", f"{self._file} in {VARIABLE}", False)

    def fetch(self, arrived: Arrived = no_progress) -> Path:
        """The path of the data set's .npz file, which is made or downloaded if it is missing."""
        source = self.source()
        if source.present and source.place.endswith(".npz"):
            return Path(source.place)
        if source.present and self.original:
            return self._keep(self.original.read(Path(source.place), arrived))
        if self.openml:
            return self._keep(self._fetch(arrived))
        raise ConfigurationError(f"data set {self.name!r} is not on this machine: {self._advice()}")

    def load(self) -> Samples:
        path = self.fetch()
        arrays = read(path)
        x, y, groups = [], [], []
        for part in PARTS:
            array = arrays[f"x_{part}"]
            x.append(self.features(array, f"{path}: x_{part}"))
            y.append(labels(arrays[f"y_{part}"], len(array), self.labels, f"{path}: y_{part}"))
            if f"group_{part}" in arrays:
                group = arrays[f"group_{part}"]
                if group.shape != (len(array),) or group.dtype.kind not in "ui":
                    raise ConfigurationError(
                        f"{path}: group_{part} holds {group.dtype} of shape {group.shape}, "
                        f"not {len(array)} integers"
                    )
                groups.append(torch.as_tensor(group.astype(np.int64)))
        raw = all(part.dtype == torch.uint8 for part in x)
        if not raw:
            x = [part / self.scale if part.dtype == torch.uint8 else part for part in x]
        grouped = torch.cat(groups) if len(groups) == len(PARTS) else None
        scale = self.scale if raw else 1.0
        return Samples(torch.cat(x), torch.cat(y), self.labels, grouped, scale=scale)

    def from_openml(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Converts OpenML's features (n, columns) and labels (n,) to the x and y of the file.

        Labels are integers. Grey images become (n, height, width), and colour images become (n, 3,
        height, width).
        """
        x = np.rint(x).astype(np.uint8)
        channels, height, width = self.sample
        if channels == 1:
            return x.reshape(-1, height, width), y
        return channels_first(x, channels, height, width), y

    @property
    def _file(self) -> str:
        return f"{self.name}.npz"

    def _advice(self) -> str:
        also = f", or {self.original.name}," if self.original else ""
        own = _folder(VARIABLE)
        lost = f"; it names {own}, which is not a folder" if own and not own.is_dir() else ""
        return (
            f"put {self._file}{also} into a folder of yours and set {VARIABLE} to the folder "
            f"({', '.join(ARRAYS)}; see docs/data.md){lost}"
        )

    def _fetch(self, arrived: Arrived) -> dict[str, np.ndarray]:
        from rampart_fl.shared.learning.data.datasets.openml import table

        try:
            x, y = self.from_openml(*table(self.openml, lambda rows: arrived(rows, self.total)))
            if len(y) != self.total:
                raise ValueError(f"{len(y)} samples, not {self.total}")
            labels(y, len(x), self.labels, "its labels")
        except (OSError, ValueError, Unavailable) as error:
            raise ConfigurationError(
                f"data set {self.name!r} cannot be downloaded from OpenML ({self.openml}): "
                f"{type(error).__name__}: {error}; {self._advice()}"
            ) from None
        cut = {"train": slice(None, self.train), "test": slice(self.train, None)}
        return {
            f"{kind}_{part}": a[cut[part]] for kind, a in (("x", x), ("y", y)) for part in PARTS
        }

    def _keep(self, arrays: Mapping[str, np.ndarray]) -> Path:
        path = cache() / self._file
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with durable.replacing(path, several=True) as part:
                np.savez(part, **dict[str, Any](arrays))
        except OSError as error:
            raise ConfigurationError(
                f"cannot write {path}: {error.strerror}; set {CACHE} to another folder"
            ) from None
        return path


def sample_count(path: Path) -> int | None:
    """Number of samples in a data set's file; None if the file cannot be read."""
    try:
        with archive(path) as arrays:
            return sum(arrays[f"y_{part}"].size for part in PARTS)
    except ConfigurationError:
        return None


def cache() -> Path:
    """The folder that RAMPART_DATA_CACHE names, or else the operating system's cache folder."""
    return _folder(CACHE) or caches.folder()


def channels_first(x: np.ndarray, channels: int, height: int, width: int) -> np.ndarray:
    """Reshapes flattened images (n, channels*height*width) to (n, channels, height, width).

    In some tables, a row has all pixels of the first channel, then all pixels of the next channel.
    In other tables, a row has all channels of the first pixel, then all channels of the next pixel.
    Neighbouring pixels of real images are similar. This function therefore chooses the order in
    which neighbouring pixels differ less.

    >>> image = np.arange(3 * 4 * 4, dtype=np.uint8).reshape(1, 3, 4, 4)
    >>> mixed = image.transpose(0, 2, 3, 1).reshape(1, -1)
    >>> bool((channels_first(mixed, 3, 4, 4) == image).all())
    True
    """
    first = x.reshape(-1, channels, height, width)
    last = x.reshape(-1, height, width, channels).transpose(0, 3, 1, 2)

    def rough(images: np.ndarray) -> float:
        return float(np.abs(np.diff(images[:1000].astype(np.int16), axis=3)).mean())

    return np.ascontiguousarray(min(first, last, key=rough))


def _folder(variable: str) -> Path | None:
    value = os.environ.get(variable)
    return Path(value).expanduser() if value else None
