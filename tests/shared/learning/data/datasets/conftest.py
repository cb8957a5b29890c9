"""Separate folders for the tests' files, and no network."""

from pathlib import Path
from typing import NamedTuple

import pytest

from rampart_fl.shared.learning.data.datasets import openml
from rampart_fl.shared.learning.data.datasets.files import CACHE, VARIABLE
from rampart_fl.shared.learning.data.datasets.openml import RowsArrived


class Folders(NamedTuple):
    """The folders in which data files are searched for."""

    own: Path
    cache: Path


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folders:
    """An empty RAMPART_DATA_DIR, a cache that does not exist yet, and no network."""

    def away(data_id: int, arrived: RowsArrived) -> None:
        raise OSError(f"no route to data set {data_id}")

    result = Folders(tmp_path / "own", tmp_path / "below" / "cache")
    result.own.mkdir()
    monkeypatch.setenv(VARIABLE, str(result.own))
    monkeypatch.setenv(CACHE, str(result.cache))
    monkeypatch.setattr(openml, "table", away)
    return result
