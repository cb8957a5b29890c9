"""Downloads tables from OpenML (docs/dependencies.md says why Rampart does not use scikit-learn).

A table is an ARFF file: lines about its columns, a line "@DATA", and then one line per row. The
rows are read while they arrive, so that the number of rows shows the progress of the download.
"""

import gzip
import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Iterator
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np

from rampart_fl.shared.runtime.retries import RETRIED, TemporaryFailure, repeat_blocking

ADDRESS = "https://www.openml.org/api/v1/json/data"
SILENCE = 10.0
"""A connection fails if no data arrive for this number of seconds."""
PATIENCE = 30.0
"""Seconds during which a failed download is retried."""
STEP = 100
"""Number of rows between two progress reports."""
RowsArrived = Callable[[int], None]
"""A function that is called with the number of rows that have arrived."""


def table(data_id: int, arrived: RowsArrived = lambda rows: None) -> tuple[np.ndarray, np.ndarray]:
    """Features float64 (n, columns) and integer labels (n,) of one data set.

    Args:
        data_id: the number of the data set at OpenML.
        arrived: a function that is called with the number of rows that have arrived.
    Raises:
        Unavailable: OpenML cannot be reached, or the connection was lost.
        OSError: OpenML refuses the request because it has no such data set.
        ValueError: OpenML's answer is malformed, the data do not match their checksum, or the data
            are not a table of numbers.
    """

    def attempt() -> tuple[np.ndarray, np.ndarray]:
        try:
            return _read(data_id, arrived)
        except HTTPError as error:
            error.close()  # An HTTPError that is not closed keeps its connection open.
            if error.code not in RETRIED:
                raise
            raise TemporaryFailure.after(error, error.headers.get("Retry-After", "")) from error
        except (OSError, EOFError, HTTPException) as error:
            raise TemporaryFailure.after(error) from error

    return repeat_blocking(attempt, f"{ADDRESS}/{data_id}", PATIENCE)


def _read(data_id: int, arrived: RowsArrived) -> tuple[np.ndarray, np.ndarray]:
    try:
        about = _request(f"{ADDRESS}/{data_id}")["data_set_description"]
        columns = _request(f"{ADDRESS}/features/{data_id}")["data_features"]["feature"]
        columns.sort(key=lambda column: int(column["index"]))
        targets = [column["is_target"] == "true" for column in columns]
        unused = [
            "true" in (column["is_target"], column["is_ignore"], column["is_row_identifier"])
            for column in columns
        ]
        address, expected = about["url"], about["md5_checksum"]
    except (KeyError, TypeError) as error:
        raise ValueError(f"OpenML's answer lacks {error}") from None
    checksum = hashlib.md5(usedforsecurity=False)
    with _open(address) as lines, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "loadtxt: input contained no data", UserWarning)
        rows = _rows(lines, checksum.update, arrived)
        values = np.loadtxt(rows, delimiter=",", quotechar="'", comments="%", ndmin=2)
    if checksum.hexdigest() != expected:
        raise ValueError(f"the md5 checksum is {checksum.hexdigest()}, not {expected}")
    if sum(targets) != 1 or values.shape[1] != len(columns) or not np.isfinite(values).all():
        raise ValueError(
            f"the table has shape {values.shape}; it must have {len(columns)} columns of finite "
            "numbers, and exactly one of the columns must be the target"
        )
    return np.delete(values, unused, axis=1), values[:, targets.index(True)].astype(np.int64)


def _rows(
    lines: Iterable[bytes], checked: Callable[[bytes], None], arrived: RowsArrived
) -> Iterator[str]:
    """The rows after the line "@DATA", as text."""
    count = -1
    for line in lines:
        checked(line)
        if count >= 0:
            yield line.decode()
            count += 1
            if count % STEP == 0:
                arrived(count)
        elif line.strip().upper() == b"@DATA":
            count = 0


def _request(address: str) -> Any:
    with _open(address) as answer:
        return json.loads(answer.read())


def _open(address: str) -> Any:
    """The decompressed response to a request, as a binary file object."""
    if not address.startswith(("https://", "http://")):
        raise ValueError(f"{address!r} is not an address on the web")
    request = Request(address, headers={"Accept-Encoding": "gzip"})  # noqa: S310 - checked above
    answer = urlopen(request, timeout=SILENCE)  # noqa: S310 - checked above
    compressed = answer.headers.get("Content-Encoding") == "gzip"
    return gzip.GzipFile(fileobj=answer) if compressed else answer
