"""Progress and time left while data sets are downloaded or converted."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from rampart_fl.services.console import downloads
from rampart_fl.services.console.app import app
from rampart_fl.services.console.commands import simulate
from rampart_fl.services.console.display.progress import Progress
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.toml import to_toml
from rampart_fl.shared.learning.data.datasets import datasets, openml
from rampart_fl.shared.learning.data.datasets.activity import STEP
from rampart_fl.shared.learning.data.datasets.files import CACHE, VARIABLE
from rampart_fl.shared.learning.data.datasets.openml import RowsArrived
from tests.services.console.display.test_progress import Clock

ROWS = 9298


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of a connection over which usps takes a minute and a half."""
    clock = Clock()

    def table(data_id: int, arrived: RowsArrived) -> tuple[np.ndarray, np.ndarray]:
        for rows in range(100, ROWS, 100):
            clock.now += 1
            arrived(rows)
        return np.zeros((ROWS, 256)), np.arange(ROWS) % 10 + 1

    monkeypatch.setattr(openml, "table", table)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "own"))
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    return clock


def test_download_shows_the_time_left(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    path = downloads.fetch(datasets.build("usps"), clock)
    assert path is not None
    assert path.exists()
    lines = capsys.readouterr().err.splitlines()
    assert lines[1] == "1000/9298 rows of usps, 1 min 23 s left"
    assert lines[-1] == "9000/9298 rows of usps"
    assert downloads.fetch(datasets.build("usps"), clock) == path
    assert capsys.readouterr().err == ""


def test_all_data_sets_of_an_experiment_are_fetched(clock: Clock, tmp_path: Path) -> None:
    tables = Experiment.load("digits-sign-flip").tables()
    tables["server"]["test"] = {"dataset": "usps"}
    downloads.fetch_all([Experiment.load("digits-benign"), Experiment.from_tables(tables)])
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["usps.npz"]


@pytest.mark.parametrize("command", ["simulate", "up", "data show"])
def test_missing_package_of_a_data_set_is_named(command: str, tmp_path: Path) -> None:
    file = tmp_path / "theirs.toml"
    tables = Experiment.load("digits-benign").tables()
    tables["data"]["dataset"] = "patients"
    file.write_text(to_toml(tables | {"packages": {"patients": "my-clinic==1.2"}}))
    told = CliRunner().invoke(app, [*command.split(), str(file)])
    assert told.exit_code == 1
    reason = "'patients' comes from my-clinic==1.2, which is not installed here"
    assert reason in str(told.exception)


def test_data_sets_of_all_sweep_points_are_fetched(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "two.toml"
    base = to_toml(Experiment.load("digits-benign").tables())
    file.write_text(base + '\n[sweep]\n"data.dataset" = ["digits", "usps"]\n')
    runs: list[str] = []
    monkeypatch.setattr(simulate, "_sweep", lambda grid, *rest: runs.append(grid.base.name))
    assert CliRunner().invoke(app, ["simulate", str(file)]).exit_code == 0
    assert runs == ["digits-benign"]
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["usps.npz"]


def test_conversion_of_a_publishers_file_shows_the_time_left(
    clock: Clock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = 4 * STEP
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "WISDM_ar_v1.1_raw.txt").write_text("1,Walking,7,1,2,3;\n" * rows)
    arrived = Progress.show

    def slow(progress: Progress, done: float, total: float | None = None) -> None:
        clock.now += 60
        arrived(progress, done, total)

    monkeypatch.setattr(Progress, "show", slow)
    assert downloads.fetch(datasets.build("wisdm_raw"), clock) is not None
    lines = capsys.readouterr().err.splitlines()
    assert lines[1] == f"{2 * STEP}/{rows} rows of wisdm_raw, 2 min left"
    assert lines[-1] == f"{rows}/{rows} rows of wisdm_raw"
