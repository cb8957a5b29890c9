"""Runs the commands of docs/operations.md for operators, ranks and remote clients verbatim."""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np
import pytest

from rampart_fl.shared.experiment import Experiment
from tests.integration.in_process_federation import Hold, Hosted, Scripted, experiment, until
from tests.integration.multi_process_federation import Parted
from tests.manual import manual

NAMES = [f"client-{number:02}" for number in range(8)]
HOSTILE = ["client-03", "client-05"]


class Shell:
    """Runs lines of the manual in a folder, with the commands of this environment."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.folder = folder
        bin_ = folder / "bin"
        bin_.mkdir(parents=True)
        for name, words in (
            ("rampart", "-m rampart_fl.services.console"),
            ("torchrun", "-m torch.distributed.run"),
        ):
            command = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words} "$@"\n'
            (bin_ / name).write_text(command)
            (bin_ / name).chmod(0o755)
        path = f"{bin_}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.variables = {**os.environ, **variables, "PATH": path}

    def __call__(self, line: str) -> str:
        """Runs a line; returns its output."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", line],
            cwd=self.folder,
            env=self.variables,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        return done.stdout


@pytest.mark.timeout(300)
def test_manual_commands_for_labels_evictions_and_proposals_work(
    host: Callable[..., Hosted], tmp_path: Path
) -> None:
    server = {
        "detectors": [{"name": "norm_bound", "threshold": 5}],
        "eviction": {"mode": "observe", "by": "operator", "patience": 20},
    }
    hosted, hold = host(experiment(8, 20, server=server)), Hold(8)
    for name in NAMES:
        hosted.scripted([name], hold=hold, scale=10.0 if name in HOSTILE else 0.01)
    hosted.wait("collecting", 8)
    token = hosted.settings.operator_token.get_secret_value()
    shell = Shell(tmp_path / "shell", RAMPART_AGGREGATOR=hosted.url, RAMPART_OPERATOR_TOKEN=token)

    labels = manual("rampart label client-03")
    assert "client-03" in shell(labels)
    assert len((shell.folder / "tokens").read_text().split()) == 3

    listed, seventh, evicted, back = map(shell, manual("rampart rounds 7").splitlines())
    assert all(name in listed for name in NAMES)
    assert "round 7" in seventh and "client-03" in seventh
    assert "client-03" in evicted and "client-03" in back
    assert hosted.run.status().evicted == []

    shell(manual("rampart mode observe"))
    hosted.run.switch("evict", "the trial is over")
    hold.round = 12
    hosted.wait("collecting", 12)
    proposals, confirmed, dismissed = map(shell, manual("rampart proposals").splitlines())
    assert all(name in proposals for name in HOSTILE)
    assert "client-03" in confirmed and "client-05" in dismissed
    assert hosted.run.status().evicted == ["client-03"]
    assert hosted.run.proposals() == []
    hold.on = False
    hosted.wait()


@pytest.mark.timeout(300)
def test_manual_commands_give_a_client_a_new_token(
    host: Callable[..., Hosted], tmp_path: Path
) -> None:
    hosted = host(experiment(8, 2))
    hosted.join_quickly(NAMES)
    token = hosted.settings.operator_token.get_secret_value()
    shell = Shell(tmp_path / "shell", RAMPART_AGGREGATOR=hosted.url, RAMPART_OPERATOR_TOKEN=token)
    script = manual("/token").replace("curl", "curl --fail-with-body --silent --show-error")
    new = shell(script + '\nprintf "\\n%s" "$token"').splitlines()[-1]
    answer = httpx.get(
        f"{hosted.url}/v1/ticket", params={"wait": 0}, headers={"Authorization": f"Bearer {new}"}
    )
    assert answer.is_success, answer.text


@pytest.mark.timeout(300)
@pytest.mark.long
def test_manual_torchrun_command_starts_four_ranks(
    parted: Callable[[Experiment], Parted], tmp_path: Path
) -> None:
    model = {"name": "mlp", "hidden": [4000]}  # 300,010 parameters: five shards of coordinates.
    running = parted(experiment(3, 2, model=model, server={"rule": "median"}))
    running.start("api", "api")
    shell = Shell(tmp_path / "shell", RAMPART_WORKER_ID="worker")
    command = ["bash", "-c", f"exec {manual('torchrun --standalone')}"]
    settings = {**running.settings, **shell.variables, "RAMPART_PORT": "0"}
    running.processes.start("worker", command, settings)
    running.operator.ready()
    for name in NAMES[:3]:
        running.join(name)
    for name in NAMES[:3]:
        running.take_part(name, Scripted(name))
    until(lambda: len(running.ranks("worker")) == 4)
    running.wait()
    assert [record.status for record in running.run.rounds()] == ["published"] * 2


@pytest.mark.timeout(300)
def test_manual_commands_start_a_remote_client_with_its_own_data(
    host: Callable[..., Hosted], tmp_path: Path
) -> None:
    hosted = host(experiment(3, 2))
    hosted.scripted(NAMES[:2])
    shell = Shell(tmp_path / "shell")
    rng = np.random.default_rng(3)
    np.savez(
        shell.folder / "ours.npz",
        x_train=rng.random((40, 1, 8, 8), np.float32),
        y_train=rng.integers(0, 10, 40),
        x_test=rng.random((10, 1, 8, 8), np.float32),
        y_test=rng.integers(0, 10, 10),
    )
    (token,) = hosted.operator.mint(["elsewhere"]).tokens
    script = manual("RAMPART_JOIN_TOKEN=...")
    for placeholder, value in (
        ("https://federation.example:8440", hosted.url),
        ("...", token),
        ("/var/lib/rampart/state", str(shell.folder / "state")),
        ("/data/ours.npz", str(shell.folder / "ours.npz")),
    ):
        assert placeholder in script
        script = script.replace(placeholder, value)
    agent = subprocess.Popen(["bash", "-c", script], env=shell.variables)
    try:
        hosted.wait()
    finally:
        agent.terminate()
        agent.wait(60)
    assert "elsewhere" in hosted.record(0).participants
