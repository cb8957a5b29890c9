"""Runs the commands of docs/operations.md for `rampart serve` and its federation verbatim."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rampart_fl.services.console.launcher.federation_folder import ServedFolder
from rampart_fl.services.console.launcher.processes import free_port
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.toml import to_toml
from rampart_fl.shared.learning.network.starting_model import read_vector
from rampart_fl.shared.learning.network.vector import initial_model
from tests.manual import manual

pytestmark = [pytest.mark.processes, pytest.mark.long]
PATIENCE = 480


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """An empty folder; its federation and clients stop after the test."""
    yield tmp_path
    ServedFolder(tmp_path / "runs/federation").shut_down()


def commands(folder: Path) -> None:
    """Writes the commands `rampart` and `python` of this environment to a folder."""
    folder.mkdir()
    for name, words in (("python", ""), ("rampart", " -m rampart_fl.services.console")):
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}"{words} "$@"\n')
        path.chmod(0o755)


def execute(script: str, folder: Path, port: str) -> str:
    """Runs a script in a folder, with the federation's address set; returns its output."""
    variables = {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "RAMPART_PORT": port,
        "RAMPART_AGGREGATOR": f"http://127.0.0.1:{port}",
    }
    session = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        said, errors = session.communicate(timeout=PATIENCE)
    finally:
        if session.poll() is None:
            os.killpg(session.pid, signal.SIGKILL)
    assert session.returncode == 0, errors[-2000:]
    return said


def test_manual_commands_for_runs_work(folder: Path) -> None:
    commands(folder / "bin")
    port = str(free_port())
    tables = Experiment.load("digits-benign").tables()
    tables["data"]["clients"] = 2
    (folder / "mine.toml").write_text(to_toml(tables))
    execute("rampart serve --detach --agents 2", folder, port)

    def reaches(state: str) -> None:
        give_up = time.monotonic() + PATIENCE
        while json.loads(execute("rampart runs tuesday-1 --json", folder, port))["state"] != state:
            assert time.monotonic() < give_up, f"the run never reached the state {state}"
            time.sleep(0.5)  # Each question starts a process.

    check, submit, runs, pause, resume, stop, delete = manual("mine.toml --check").splitlines()
    assert "memory of the worker" in execute(check, folder, port)
    assert "tuesday-1" in execute(submit, folder, port)
    assert "tuesday-1" in execute(runs, folder, port)
    execute(pause, folder, port)
    reaches("paused")
    execute(resume, folder, port)
    reaches("running")
    execute(stop, folder, port)
    reaches("finished")
    assert "tuesday-1 is deleted" in execute(delete, folder, port)
    assert "tuesday-1" not in execute(runs, folder, port)


def test_manual_session_gives_the_documented_results(folder: Path) -> None:
    commands(folder / "bin")
    said = execute(manual("rampart serve --detach"), folder, str(free_port()))

    assert re.search(r"memory of the worker +4\d\d\.\d MiB", said)
    assert "third-3 is queued: waits for the end of first-1 and 1 more run" in said
    assert re.search(r"state +finished +finished +finished\n", said)
    assert re.search(r"rounds +3 +3 +3\n", said)
    assert re.search(r" training\.epochs +5 +2 +5\n", said)
    assert "first-1 is deleted" in said
    last = said.partition("first-1 is deleted")[2]
    assert "second-2" in last and "third-3" in last and "first-1" not in last
    assert re.search(r"5 entries, none altered or missing; the head is [0-9a-f]{64}", last)
    assert last.rstrip().endswith("the federation was stopped")
    log = (folder / "runs/federation/serve.log").read_text()
    assert "aggregator exited with code -9; waiting" in log
    assert ServedFolder(folder / "runs/federation").server() is None

    exported = folder / "exports/second"
    check = ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"]
    assert subprocess.run(check, cwd=exported, check=False).returncode == 0
    experiment = Experiment.load(exported / "experiment.toml")
    assert (experiment.training.epochs, experiment.rounds) == (2, 3)
    provenance = json.loads((exported / "provenance.json").read_text())
    assert provenance["experiment_digest"] == experiment.digest()
    assert provenance["submitted_by"] == "owner"
    records = (exported / "rounds.jsonl").read_text().splitlines()
    assert [json.loads(record)["status"] for record in records] == ["published"] * 3
    spec, first_D = initial_model(experiment)
    models = sorted((exported / "models").iterdir())
    assert len(models) == 7 and models[-1].name == "global.safetensors"
    assert not read_vector(models[-1], spec).equal(first_D)
    members = json.loads((exported / "members.json").read_text())
    assert sorted(member["slot"] for member in members) == list(range(6))
