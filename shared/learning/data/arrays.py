"""Reads samples and labels from files of arrays, and checks them.

The files are local: the user who runs the process provides them, or Rampart makes them from
OpenML's tables or a publisher's file. Rampart never unpickles a file, so no file can execute code.

Legend: n samples.
"""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.lib.npyio import NpzFile
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError

PARTS = ("train", "test")
ARRAYS = ("x_train", "y_train", "x_test", "y_test")


def read(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays of a file with x_train, y_train, x_test and y_test.

    Raises:
        ConfigurationError: the file does not exist, is not an archive of arrays, or lacks an array.
    """
    with archive(path) as arrays:
        missing = [name for name in ARRAYS if name not in arrays]
        if missing:
            raise ConfigurationError(f"{path} lacks {', '.join(missing)}")
        return {name: arrays[name] for name in arrays.files}


@contextmanager
def archive(path: str | Path) -> Iterator[NpzFile]:
    """Opens an .npz file, and refuses arrays that would have to be unpickled.

    Raises:
        ConfigurationError: the file does not exist, is not an archive or is damaged. Some damage is
            found only when an array is read.
    """
    try:
        # The file is opened here, because `np.load` would not close a file that is not an archive.
        with Path(path).open("rb") as file:
            arrays = np.load(file, allow_pickle=False)
            if not isinstance(arrays, NpzFile):
                raise ValueError("a single array, not an .npz archive of arrays")
            yield arrays
    except ConfigurationError:
        raise
    except (OSError, ValueError, EOFError, KeyError, BadZipFile, zlib.error) as error:
        raise ConfigurationError(f"cannot read {path}: {error}") from None


def as_samples(array: np.ndarray, shape: tuple[int, ...], what: str) -> Tensor:
    """Samples (n, *shape) from a file's array: uint8 stays uint8, other types become float32."""
    if array.dtype.kind not in "uif":
        raise ConfigurationError(f"{what} holds {array.dtype}, not numbers")
    small = array.dtype == np.uint8
    x = torch.as_tensor(array if small else array.astype(np.float32))
    given, squeezed = tuple(x.shape[1:]), tuple(size for size in shape if size != 1)
    if given != shape and given == squeezed:
        x = x.reshape(len(x), *shape)
    elif given != shape and len(shape) == 3 and given == (*shape[1:], shape[0]):
        x = x.permute(0, 3, 1, 2)
    if tuple(x.shape[1:]) != shape or not len(x):
        raise ConfigurationError(
            f"{what} has shape {array.shape}, but the model takes (n, *{shape})"
        )
    if not small and not bool(x.isfinite().all()):
        raise ConfigurationError(f"{what} is not finite")
    return x


def labels(array: np.ndarray, n: int, classes: int, what: str) -> Tensor:
    """Class indices as an int64 tensor (n,); indices outside 0..classes-1 are refused."""
    if array.dtype.kind not in "ui" or array.shape != (n,):
        raise ConfigurationError(
            f"{what} holds {array.dtype} of shape {array.shape}, not {n} integers"
        )
    if int(array.min()) < 0 or int(array.max()) >= classes:
        raise ConfigurationError(f"{what} has numbers outside 0..{classes - 1}")
    return torch.as_tensor(array.astype(np.int64))
