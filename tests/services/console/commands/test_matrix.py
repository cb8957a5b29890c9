"""The command `rampart matrix`: its devices, its reports, and the runs that it reuses."""

import json
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rampart_fl.services.console.app import app
from rampart_fl.services.console.studies import matrix_runs, pools
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.toml import to_toml
from tests.services.console.studies.test_matrix_cells import BASE


def test_cells_on_ray_get_the_device_and_the_share_of_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "small.toml"
    file.write_text(to_toml(BASE.tables()))
    clusters: list[tuple[Any, ...]] = []
    devices: list[str] = []

    def cluster(*resources: Any) -> Executor:
        clusters.append(resources)
        return ThreadPoolExecutor(1)

    def simulated(experiment: Experiment, device: str) -> dict[str, Any]:
        devices.append(device)
        return {"accuracy_local": 0.5}

    monkeypatch.setattr(pools, "RayCluster", cluster)
    monkeypatch.setattr(matrix_runs, "run_simulation", simulated)
    words = ["matrix", str(file), "--attacks", "lie", "--defences", "median"]
    words += ["--seeds", "2", "--out", str(tmp_path / "out"), "--json"]
    words += ["--ray", "local", "--device", "cuda", "--gpus", "0.25"]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    assert clusters == [("local", 1, 0.25)]
    assert devices == ["cuda", "cuda"]


def test_matrix_with_failed_runs_is_written_but_exits_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    file, out = tmp_path / "small.toml", tmp_path / "out"
    file.write_text(to_toml(BASE.tables()))

    def simulated(experiment: Experiment, device: str) -> dict[str, Any]:
        return {"accuracy_local": 0.5} if experiment.seed else {"error": "the disk is full"}

    monkeypatch.setattr(matrix_runs, "run_simulation", simulated)
    words = ["matrix", str(file), "--attacks", "lie", "--defences", "median", "--seeds", "2"]
    result = CliRunner().invoke(app, [*words, "--out", str(out)])
    assert result.exit_code == 1
    assert result.stdout == (out / "matrix.md").read_text()
    assert "error: 1 of 2 runs failed; see the table" in result.stderr


def test_matrix_on_an_unusable_device_ends_before_the_first_run(
    tmp_path: Path, rampart: Any
) -> None:
    said = rampart("matrix", "digits-matrix", "--device", "meta", "--out", str(tmp_path / "out"))
    assert said.code == 1 and "device 'meta' cannot be used" in said.err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_matrix_command_reports_all_cells_and_reuses_finished_runs(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "small.toml"
    file.write_text(to_toml(BASE.tables()))
    words = ["matrix", str(file), "--attacks", "none,dba:width=3"]
    words += ["--defences", "median,fedcap", "--rounds", "1", "--seeds", "2"]
    words += ["--out", str(tmp_path / "out"), "--heat-map", "customized"]
    result = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    for kind in ("customized", "local"):
        success = [cell[f"attack_success_{kind}"] for cell in report["cells"]]
        assert [share is None for share in success] == [True, True, False, False]
        assert all(0 < cell[f"accuracy_{kind}"] < 1 for cell in report["cells"])
    assert [len(cell["runs"]) for cell in report["cells"]] == [2] * 4
    kept = sorted((tmp_path / "out" / "cells").iterdir())
    assert len(kept) == 8
    times = [path.stat().st_mtime_ns for path in kept]
    text = CliRunner().invoke(app, words, catch_exceptions=False).stdout
    assert text == (tmp_path / "out" / "matrix.md").read_text()
    assert [path.stat().st_mtime_ns for path in kept] == times
