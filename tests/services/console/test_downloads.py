"""The download of data sets shows its progress and the time left."""

from pathlib import Path

import numpy as np
import pytest

from rampart_fl.services.console import downloads
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.learning.data.datasets import datasets, openml
from rampart_fl.shared.learning.data.datasets.files import CACHE, VARIABLE
from rampart_fl.shared.learning.data.datasets.openml import Rows
from tests.services.console.test_progress import Clock

ROWS = 9298


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of a connection over which usps takes a minute and a half."""
    clock = Clock()

    def table(data_id: int, arrived: Rows) -> tuple[np.ndarray, np.ndarray]:
        for rows in range(100, ROWS, 100):
            clock.now += 1
            arrived(rows)
        return np.zeros((ROWS, 256)), np.arange(ROWS) % 10 + 1

    monkeypatch.setattr(openml, "table", table)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "own"))
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    return clock


def test_a_download_tells_the_time_left(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    path = downloads.fetch(datasets.build("usps"), clock)
    assert path is not None
    assert path.exists()
    lines = capsys.readouterr().err.splitlines()
    assert lines[1] == "1000/9298 samples of usps downloaded, 1 min left"
    assert lines[-1] == "9000/9298 samples of usps downloaded"
    assert downloads.fetch(datasets.build("usps"), clock) == path
    assert capsys.readouterr().err == ""


def test_all_data_sets_of_an_experiment_are_fetched(clock: Clock, tmp_path: Path) -> None:
    tables = Experiment.load("digits-sign-flip").tables()
    tables["server"]["test"] = {"dataset": "usps"}
    downloads.fetch_all(Experiment.from_tables(tables))
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["usps.npz"]
