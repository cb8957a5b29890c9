"""`rampart simulate`: its metrics, its files, and resuming a killed run."""

import json
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.sweep import Sweep
from rampart_fl.shared.figures.client_metrics import sides
from rampart_fl.shared.protocol.messages import RoundRecord
from rampart_fl.shared.simulation import simulate
from rampart_fl.shared.validation import validate

SMALL = """
name = "small"
rounds = {rounds}
model = {{ name = "mlp", hidden = [8] }}
training = {{ epochs = 1, batch_size = 20 }}
personalizer = {{ name = "fedcap", lambda = 0.1 }}
[data]
dataset = "digits"
clients = 6
samples = 60
[server]
detectors = ["robust_distance"]
customizer = {{ name = "fedcap", alpha = 10, phi = 0.1 }}
[[attackers]]
count = 1
attack = "model_replacement"
"""
Rampart = Callable[..., Any]


def untimed(summary: dict[str, Any]) -> dict[str, Any]:
    """A summary without the values that depend on the machine."""
    return {name: v for name, v in summary.items() if not name.startswith("seconds")}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A short experiment."""
    path = tmp_path / "small.toml"
    path.write_text(SMALL.format(rounds=3))
    return path


def test_completed_run_reports_and_stores_its_metrics(
    rampart: Rampart, file: Path, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "out"
    said = rampart(
        "simulate", str(file), "--seed", "2", "--rounds", "4", "--out", str(out), "--json"
    )
    assert said.code == 0, said.err
    (line,) = said.out.splitlines()
    summary = json.loads(line)
    experiment = Experiment.from_tables({**Experiment.load(file).tables(), "seed": 2, "rounds": 4})
    same = simulate(experiment).summary()
    assert untimed(summary) == untimed(same)
    (hostile,) = sides(experiment)[1]
    assert summary["evicted"] == [hostile]
    # Progress goes to standard error, everything else to the folder.
    assert "round 3" in said.err
    assert f"{hostile} evicted" in said.err
    lines = (out / "records.jsonl").read_text().splitlines()
    assert [RoundRecord.model_validate_json(one).round for one in lines] == [0, 1, 2, 3]
    assert json.loads((out / "result.json").read_text()) == summary
    assert Experiment.load(out / "experiment.toml") == experiment
    assert (out / "accuracy.png").read_bytes().startswith(b"\x89PNG")


def test_run_without_an_output_folder_writes_no_files(
    rampart: Rampart, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = rampart("simulate", str(file), "--accuracy-of", "best")
    assert said.code == 0, said.err
    assert "accuracy after local training" in said.out
    assert "not kept" in said.out
    assert [path.name for path in tmp_path.iterdir()] == ["small.toml"]


@pytest.mark.slow
def test_existing_folder_is_not_overwritten_and_resume_reuses_its_run(
    rampart: Rampart, file: Path, tmp_path: Path
) -> None:
    words = ["simulate", str(file), "--json", "--out", str(tmp_path / "out")]
    first = rampart(*words)
    again = rampart(*words)
    assert (again.code, again.out) == (1, "")
    assert "--resume" in again.err
    resumed = rampart(*words, "--resume")
    assert resumed.out == first.out
    other = rampart(*words, "--resume", "--seed", "9")
    assert (other.code, other.out) == (1, "")
    assert "another experiment" in other.err
    assert Experiment.load(tmp_path / "out/experiment.toml") == Experiment.load(file)
    assert rampart("simulate", str(file), "--resume").code == 2


def test_resume_before_the_first_checkpoint_does_not_replace_another_run(
    rampart: Rampart, file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    words = ["simulate", str(file), "--json", "--out", str(out)]
    first = rampart(*words)
    (out / "checkpoint.safetensors").unlink(missing_ok=True)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    other = rampart(*words, "--resume", "--seed", "9")
    assert (other.code, other.out) == (1, "")
    assert "from another experiment: resume with" in other.err
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert untimed(json.loads(rampart(*words, "--resume").out)) == untimed(json.loads(first.out))


def test_damaged_records_are_reported(rampart: Rampart, file: Path, tmp_path: Path) -> None:
    words = ["simulate", str(file), "--out", str(tmp_path)]
    assert rampart(*words).code == 0
    records = tmp_path / "records.jsonl"
    records.write_text(records.read_text()[1:])
    said = rampart(*words, "--resume")
    assert said.code == 1
    assert f"error: {records}: Invalid JSON" in said.err


@pytest.mark.processes
def test_killed_run_resumes_to_the_same_models(
    rampart: Rampart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, out, rounds = tmp_path / "small.toml", tmp_path / "out", 40
    file.write_text(SMALL.format(rounds=rounds))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    words = ["simulate", str(file), "--out", str(out), "--json", "--checkpoint", "3"]
    child = subprocess.Popen(
        [sys.executable, "-m", "rampart_fl.services.console", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while not (out / "checkpoint.safetensors").exists():
            assert child.poll() is None
            time.sleep(0.01)
    finally:
        child.kill()
        child.wait()
    before = (out / "records.jsonl").read_text().splitlines()
    assert 3 <= len(before) < rounds
    said = rampart(*words, "--resume")
    assert said.code == 0, said.err
    summary = json.loads(said.out)
    same = simulate(Experiment.load(file)).summary()
    assert untimed(summary) == untimed(same)
    after = (out / "records.jsonl").read_text().splitlines()
    assert [RoundRecord.model_validate_json(one).round for one in after] == list(range(rounds))


MEANS = """
name = "means"
rounds = 2
model = "mean"
training = { batch_size = 20, learning_rate = 0.1, epochs = 1 }
[data]
dataset = { name = "synthetic_means", clients = 6, samples = 20, sigma = 15, sigma_h = 2 }
partition = "by_group"
clients = 6
"""


def test_estimation_task_reports_its_mean_squared_error(rampart: Rampart, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file, out = tmp_path / "means.toml", tmp_path / "out"
    file.write_text(MEANS)
    said = rampart("simulate", str(file), "--out", str(out))
    assert said.code == 0, said.err
    error = json.loads((out / "result.json").read_text())["error"]
    assert f"mean squared error of the honest clients  {error:.4g}" in said.out
    assert f"received model {error:.4g}" in said.err
    assert (out / "error.png").exists()
    assert not (out / "accuracy.png").exists()


SWEEP = """
[sweep]
seeds = [5, 6]
server.detectors = [[], ["robust_distance"]]
personalizer.lambda = { from = 0, to = 1, step = 0.5 }
"""


@pytest.mark.slow
def test_sweep_reports_all_points_and_resume_adds_missing_runs(
    rampart: Rampart, file: Path, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    file.write_text(SMALL.format(rounds=2) + SWEEP)
    out = tmp_path / "out"
    words = ["simulate", str(file), "--out", str(out)]
    said = rampart(*words)
    assert said.code == 0, said.err
    result = json.loads((out / "sweep.json").read_text())
    points = result["sweep"]
    assert result["axes"] == ["detectors", "lambda"]
    assert [point["lambda"] for point in points] == [0, 0.5, 1] * 2
    assert [point["detectors"] for point in points] == [[]] * 3 + [["robust_distance"]] * 3
    second = Sweep.of(tomllib.loads(file.read_text())).points(validate)[1]
    alone = [simulate(run).summary()["accuracy"] for run in second.runs]
    assert points[1]["accuracy"] == fmean(alone)
    assert points[1]["spread"]["accuracy"] == pytest.approx(stdev(alone))
    assert points[1]["runs"] == 2
    # Standard output has only the table, one row per point.
    assert "12/12" in said.err
    assert [line.split()[0] for line in said.out.splitlines()] == [
        "detectors",
        *["none"] * 3,
        *["robust_distance"] * 3,
    ]
    assert (out / "sweep.png").read_bytes().startswith(b"\x89PNG")

    (gone, *others) = sorted((out / "runs").iterdir())
    gone.unlink()
    times = [path.stat().st_mtime_ns for path in others]
    assert "use --resume to continue" in rampart(*words).err
    again = json.loads(rampart(*words, "--resume", "--json").out)
    assert [path.stat().st_mtime_ns for path in others] == times
    for point, before in zip(again["sweep"], points, strict=True):
        assert point["accuracy"] == before["accuracy"]


def test_up_refuses_a_sweep(rampart: Rampart, file: Path) -> None:
    file.write_text(SMALL.format(rounds=2) + SWEEP)
    said = rampart("up", str(file))
    assert (said.code, said.out) == (1, "")
    assert "use rampart simulate" in said.err
