"""`rampart up` reports metrics, and stops all its processes however it ends."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import redis

from rampart_fl.services.console.launcher.up import run_folder, up
from rampart_fl.services.console.stored_run import read_run
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.toml import to_toml
from rampart_fl.shared.figures.client_metrics import sides
from rampart_fl.shared.figures.run_result import UpSummary
from rampart_fl.shared.learning.data.datasets.files import CACHE, VARIABLE

SMALL = """
name = "small-up"
rounds = {rounds}
[data]
dataset = "digits"
clients = 3
[model]
name = "mlp"
hidden = [4]
[training]
epochs = 1
[personalizer]
name = "fedcap"
lambda = 0.1
[server]
detectors = [{{ name = "norm_bound", threshold = 20 }}]
customizer = {{ name = "fedcap" }}
[[attackers]]
count = 1
attack = {{ name = "gaussian", std = 30 }}
"""
FIGURES = {
    "experiment",
    "experiment_digest",
    "blobs_digest",
    "rounds",
    "accuracy",
    "accuracy_customized",
    "accuracy_local",
    "accuracy_personalized",
    "dacc",
    "fpr",
    "fnr",
    "evicted",
    "seconds",
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A long experiment."""
    path = tmp_path / "small.toml"
    path.write_text(SMALL.format(rounds=100_000))
    return path


@pytest.mark.timeout(200)
@pytest.mark.processes
def test_completed_run_reports_and_stores_its_metrics(
    rampart: Callable[..., Any], file: Path, tmp_path: Path
) -> None:
    before = psutil.Process().children(recursive=True)
    arguments = ["--rounds", "3", "--seed", "4", "--folder", str(tmp_path / "runs"), "--json"]
    said = rampart("up", str(file), *arguments)
    assert said.code == 0, said.err
    summary = json.loads(said.out.splitlines()[-1])
    assert summary.keys() >= FIGURES | UpSummary.__required_keys__
    assert summary.keys() <= UpSummary.__required_keys__ | UpSummary.__optional_keys__
    assert "models_digest" not in summary, "a simulation's digest, computed from the numbers"
    experiment = Experiment.from_tables({**Experiment.load(file).tables(), "rounds": 3, "seed": 4})
    honest, hostile = sides(experiment)
    assert summary["experiment"] == "small-up"
    assert summary["experiment_digest"] == experiment.digest()
    assert (summary["rounds"], summary["failed_rounds"]) == (3, 0)
    assert (summary["dacc"], summary["fpr"], summary["fnr"]) == (1.0, 0.0, 0.0)
    assert summary["evicted"] == hostile
    for name in FIGURES:
        if name.startswith("accuracy"):
            assert 0 < summary[name] <= 1
    assert summary["accuracy"] == max(
        summary["accuracy_customized"], summary["accuracy_personalized"]
    )
    # Progress goes to standard error, records to the folder.
    assert f"{hostile[0]} evicted" in said.err
    (folder,) = (tmp_path / "runs").iterdir()
    records = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    assert [record["round"] for record in records] == [0, 1, 2]
    assert json.loads((folder / "result.json").read_text()) == summary
    assert json.loads((folder / "evaluations.json").read_text()).keys() == set(honest)
    assert set(psutil.Process().children(recursive=True)) <= set(before)


@pytest.mark.timeout(200)
@pytest.mark.processes
def test_run_that_failed_is_an_error_and_the_run_beside_it_is_executed(
    rampart: Callable[..., Any], tmp_path: Path, quitter: str
) -> None:
    file, good = tmp_path / "small.toml", tmp_path / "good.toml"
    tables = {**Experiment.parse(SMALL.format(rounds=3)).tables(), "attackers": []}
    failing = Experiment.from_tables({**tables, "server": {"rule": quitter}})
    file.write_text(to_toml(failing.tables()))
    good.write_text(to_toml({**tables, "name": "good", "rounds": 1}))
    folder = ("--folder", str(tmp_path / "runs"))
    said = rampart("up", str(file), "--beside", str(good), *folder, "--json")
    assert said.code == 1
    (summary,) = map(json.loads, said.out.splitlines())
    assert (summary["experiment"], summary["rounds"]) == ("good", 1)
    lines = said.err.splitlines()
    reason = "did not finish (failed): RuntimeError: one round is enough"
    assert lines[-1].startswith(f"error: run small-up-1 {reason}")
    (records,) = (tmp_path / "runs").glob("small-up-*")
    assert f"The records of the run are in {records}" in lines
    stored = read_run(records)
    assert ([record.round for record in stored.records], stored.figures) == ([0], {})
    assert not (records / "result.json").exists()


@pytest.fixture
def running(file: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """`rampart up` as a process."""
    command = [sys.executable, "-m", "rampart_fl.services.console", "up", str(file)]
    child = subprocess.Popen(
        [*command, "--folder", str(tmp_path / "runs")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that runs the tests in the background may ignore SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    yield child
    if child.poll() is None:
        child.kill()
    child.communicate()


def children(of: int, *parts: str) -> list[psutil.Process]:
    """Descendants of a process whose command lines contain all these parts."""
    processes = psutil.Process(of).children(recursive=True)
    return [child for child in processes if all(part in " ".join(command(child)) for part in parts)]


def command(process: psutil.Process) -> list[str]:
    """The command line of a process; empty once the process has ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def wait_for(running: subprocess.Popen[str], part: str) -> psutil.Process:
    """Waits until `rampart up` has started a process with this part in its command line."""
    while not (processes := children(running.pid, part)):
        assert running.poll() is None, running.communicate()
        time.sleep(0.02)
    return processes[0]


@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    ("number", "part"),
    [
        pytest.param(signal.SIGINT, "rampart_fl.services.aggregator", marks=pytest.mark.long),
        (signal.SIGTERM, "rampart_fl.services.client_agent"),
    ],
)
def test_interrupted_run_stops_all_its_processes(
    running: subprocess.Popen[str], redis_url: str, number: int, part: str
) -> None:
    wait_for(running, part)
    started = children(running.pid)
    assert len(started) >= 2
    os.kill(running.pid, number)
    out, err = running.communicate(timeout=100)
    assert (running.returncode, out) == (130, ""), err
    assert err.splitlines()[-1] == "interrupted"
    assert not [child for child in started if child.is_running()]
    # `rampart up` must not stop another Redis on this machine.
    with redis.Redis.from_url(redis_url) as other:
        assert other.ping()


@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    "part",
    [
        "rampart_fl.services.aggregator",
        pytest.param("rampart_fl.services.attacker", marks=pytest.mark.long),
    ],
)
@pytest.mark.processes
def test_killed_process_ends_the_run_with_an_error(
    running: subprocess.Popen[str], part: str
) -> None:
    for awaited in ("rampart_fl.services.client_agent", part):
        wait_for(running, awaited)
    started = children(running.pid)
    (victim, *_) = children(running.pid, part)
    victim.kill()
    out, err = running.communicate(timeout=150)
    assert running.returncode == 1, err
    assert out == ""
    assert "exited with code -9" in err.splitlines()[-1]
    assert not [child for child in started if child.is_running()]


def test_each_run_gets_its_own_folder(tmp_path: Path) -> None:
    experiment = Experiment.parse(SMALL.format(rounds=1))
    folders = {run_folder(experiment, tmp_path) for _ in range(3)}
    assert len(folders) == 3
    assert all(folder.name.startswith("small-up-") for folder in folders)


def test_invalid_attack_is_rejected_before_anything_starts(tmp_path: Path) -> None:
    experiment = Experiment.parse(
        SMALL.format(rounds=1).replace('"gaussian", std', '"gaussian", sigmo')
    )
    with pytest.raises(ValueError, match="sigmo"):
        up(experiment, tmp_path)
    assert not list(tmp_path.iterdir())


def test_invalid_experiment_beside_another_is_rejected_before_anything_starts(
    rampart: Callable[..., Any], file: Path, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(SMALL.format(rounds=1).replace('"gaussian", std', '"gaussian", sigmo'))
    options = ("--rounds", "1", "--folder", str(tmp_path / "runs"))
    said = rampart("up", str(file), "--beside", str(wrong), *options)
    assert (said.code, said.out) == (1, "")
    (line,) = said.err.splitlines()
    assert "sigmo" in line
    assert not (tmp_path / "runs").exists()


def test_missing_data_sets_are_reported_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    file = SMALL.format(rounds=1).replace('"digits"', '"hapt"')
    with pytest.raises(ValueError, match=r"put hapt\.npz"):
        up(Experiment.parse(file), tmp_path)
    public = '[server.public]\ndataset = "tiny_imagenet"\n'
    with pytest.raises(ValueError, match=r"put tiny_imagenet\.npz"):
        up(Experiment.parse(f"{SMALL.format(rounds=1)}\n{public}"), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.timeout(200)
@pytest.mark.processes
@pytest.mark.long
def test_open_option_opens_the_page_and_serves_it_until_ctrl_c(tmp_path: Path) -> None:
    file, opened, browser = (tmp_path / name for name in ("small.toml", "told", "browser"))
    file.write_text(SMALL.format(rounds=1))
    browser.write_text(f"#!/bin/sh\nprintf '%s' \"$1\" > {opened}\n")
    browser.chmod(0o755)
    command = [sys.executable, "-m", "rampart_fl.services.console", "up", str(file), "--open"]
    with subprocess.Popen(
        [*command, "--folder", str(tmp_path / "runs")],
        env={**os.environ, "BROWSER": str(browser)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell starts background processes with SIGINT ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as running:
        assert running.stderr is not None
        lines = iter(running.stderr.readline, "")
        first = next(line for line in lines if line.startswith("Operators' page: "))
        url, token = re.findall(r"(http://\S+/)  sign in with the token (\S+)", first)[0]
        assert any(line.startswith("The run has ended.") for line in lines)
        assert opened.read_text() == url
        assert "<title>Rampart</title>" in httpx.get(url).text
        answer = httpx.get(f"{url}v1/whoami", headers={"Authorization": f"Bearer {token}"})
        assert answer.json()["role"] == "operator"
        running.send_signal(signal.SIGINT)
        out, _ = running.communicate(timeout=60)
    assert running.returncode == 0
    assert "clients judged correctly" in out
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)


def test_open_option_is_refused_together_with_beside(rampart: Callable[..., Any]) -> None:
    said = rampart("up", "digits-sign-flip", "--open", "--beside", "digits-undefended")
    assert said.code == 2
    assert "cannot be combined" in said.err
