"""Stored results are valid only for the content of the model file from which their run started."""

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from rampart_fl.services.console.studies import matrix_runs, sweeps
from rampart_fl.services.console.studies.matrix_cells import plan
from rampart_fl.services.console.studies.reproduction import runs
from rampart_fl.services.console.studies.reproduction.cells import TableCell
from rampart_fl.services.console.studies.start_file import folder_of, start_digest
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.sweep import Sweep
from rampart_fl.shared.learning.network.vector import initial_model

TABLES: dict[str, Any] = {
    "name": "small",
    "rounds": 1,
    "data": {"dataset": "digits", "clients": 3, "samples": 20},
    "model": {"name": "mlp", "hidden": [4]},
    "training": {"epochs": 1},
}


@pytest.fixture
def started(tmp_path: Path) -> dict[str, Any]:
    """An experiment that starts from the file `start.safetensors`, which contains zeros."""
    fill(tmp_path / "start.safetensors", 0.0)
    start = {"file": str(tmp_path / "start.safetensors")}
    return {**TABLES, "model": {**TABLES["model"], "start": start}}


def fill(path: Path, value: float) -> None:
    spec, _ = initial_model(Experiment.from_tables(TABLES))
    save_file({one.name: torch.full(one.shape, value) for one in spec.tensors}, path)


def run_matrix(tables: dict[str, Any], folder: Path) -> None:
    cells = plan(Experiment.from_tables(tables), ["none"], ["median"])
    matrix_runs.follow(cells, folder, None, lambda cell, figures: None)


def run_sweep(tables: dict[str, Any], folder: Path) -> None:
    grid = Sweep.of({**tables, "sweep": {"server": {"learning_rate": [0.5]}}})
    sweeps.sweep(grid, folder=folder)


def run_table(tables: dict[str, Any], folder: Path) -> None:
    experiment = Experiment.from_tables(tables)
    cell = TableCell({"method": "any"}, None, "accuracy_local", "last", (experiment,))
    runs.run([cell], folder, title="small", resume=True)


def stored(folder: Path) -> Path:
    (path,) = [*folder.glob("cells/*.json"), *folder.glob("runs/*.json")]
    return path


STUDIES = pytest.mark.parametrize("study", [run_matrix, run_sweep, run_table])


@STUDIES
def test_run_is_executed_again_if_its_start_file_has_changed(
    study: Any, started: dict[str, Any], tmp_path: Path
) -> None:
    study(started, tmp_path / "out")
    file = stored(tmp_path / "out")
    first = json.loads(file.read_text())
    assert first["rampart_version"] == version("rampart-fl")
    study(started, tmp_path / "out")
    assert json.loads(file.read_text()) == first, "the stored results were used"
    fill(tmp_path / "start.safetensors", 0.5)
    study(started, tmp_path / "out")
    second = json.loads(file.read_text())
    assert first["start_sha256"] != second["start_sha256"]
    assert second["start_sha256"] == start_digest(Experiment.from_tables(started))
    del second["start_sha256"]  # As an older version stored it.
    file.write_text(json.dumps(second))
    study(started, tmp_path / "out")
    assert "start_sha256" in json.loads(file.read_text())


@STUDIES
def test_results_of_any_version_without_a_start_file_stay_valid(study: Any, tmp_path: Path) -> None:
    study(TABLES, tmp_path)
    file = stored(tmp_path)
    older = json.loads(file.read_text())
    assert "start_sha256" not in older
    del older["rampart_version"]
    for origin in ({}, {"rampart_version": "0.0.1"}):
        file.write_text(json.dumps({**older, **origin}))
        study(TABLES, tmp_path)
        assert file.read_text() == json.dumps({**older, **origin}), "the stored results were used"


def test_checkpoints_are_separate_for_each_content_of_the_start_file(
    started: dict[str, Any], tmp_path: Path
) -> None:
    experiment, plain = Experiment.from_tables(started), Experiment.from_tables(TABLES)
    first = folder_of(experiment)
    fill(tmp_path / "start.safetensors", 0.5)
    assert folder_of(experiment) != first
    assert folder_of(plain) == plain.digest() and start_digest(plain) is None
    (tmp_path / "start.safetensors").unlink()
    with pytest.raises(ConfigurationError, match=r"model.start: cannot read .*No such file"):
        start_digest(experiment)
