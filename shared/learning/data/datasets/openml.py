"""Downloads tables from OpenML through scikit-learn."""

import socket
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import numpy as np

SILENCE = 10.0
"""Timeout in seconds for a connection without data. scikit-learn tries four times, or eight times
if a connection was accepted."""


def table(data_id: int) -> tuple[np.ndarray, np.ndarray]:
    """Features float64 (n, columns) and integer labels (n,) of one data set.

    Raises:
        OSError: OpenML cannot be reached.
        ValueError: OpenML has no such data set, the data do not match their checksum, or they are
            not a table of numbers.
    """
    from sklearn.datasets import fetch_openml

    # pandas reads large tables much faster, but is optional.
    parser = "pandas" if find_spec("pandas") else "liac-arff"
    # scikit-learn reads the download twice: to verify its checksum and to parse it. The temporary
    # folder keeps the download between the two reads.
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder, _impatient():
        # scikit-learn warns about every failed attempt; only the last failure raises an error.
        warnings.filterwarnings("ignore", "A network error", UserWarning)
        warnings.filterwarnings("ignore", "Invalid cache", RuntimeWarning)
        try:
            found = fetch_openml(data_id=data_id, as_frame=False, parser=parser, data_home=folder)
            x = _features(found, coded=parser == "liac-arff")
            y = np.array([int(float(label)) for label in found.target], dtype=np.int64)
        except (OSError, ValueError):
            raise
        except Exception as error:  # A malformed answer can make the parsers raise anything.
            raise ValueError(f"{type(error).__name__}: {error}") from error
    if x.ndim != 2 or len(x) != len(y) or not np.isfinite(x).all():
        raise ValueError(f"a table of shape {x.shape} with {len(y)} labels")
    return x, y


@contextmanager
def _impatient() -> Iterator[None]:
    """Sets a timeout for new connections, because scikit-learn sets none."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(SILENCE)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _features(found: Any, coded: bool) -> np.ndarray:
    """The features as numbers; if `coded`, categorical columns hold category indices."""
    x = np.array(found.data, dtype=np.float64)
    categories = found.categories or {}
    for column, name in enumerate(found.feature_names):
        if coded and name in categories:
            values = np.array([float(value) for value in categories[name]])
            x[:, column] = values[x[:, column].astype(np.int64)]
    return x
