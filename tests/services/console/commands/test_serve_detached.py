"""`rampart serve --detach` leaves no process behind if it does not return the URL."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from rampart_fl.services.console.commands import serve
from rampart_fl.services.console.launcher.federation_folder import ServedFolder
from rampart_fl.services.console.launcher.processes import free_port
from tests.services.console.launcher.test_up import children, wait_for

pytestmark = pytest.mark.processes


@pytest.fixture
def started() -> Iterator[list[psutil.Process]]:
    """Processes that are killed after the test."""
    processes: list[psutil.Process] = []
    yield processes
    for process in processes:
        if process.is_running():
            process.kill()


def test_federation_that_is_not_ready_in_time_is_stopped(
    rampart: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    started: list[psutil.Process],
) -> None:
    monkeypatch.setattr(serve, "PATIENCE", 0.0)
    folder = tmp_path / "federation"
    said = rampart("serve", "--detach", "--folder", str(folder), "--port", str(free_port()))
    started += children(os.getpid(), str(folder))
    assert not started
    assert ServedFolder(folder).server() is None
    why = f"error: rampart serve is not ready after 0 s; see {folder}/serve.log: it wrote nothing\n"
    assert (said.code, said.out, said.err) == (1, "", why)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_command_stops_the_federation_that_it_started(
    tmp_path: Path, started: list[psutil.Process], number: int
) -> None:
    command = [sys.executable, "-m", "rampart_fl.services.console", "serve", "--detach"]
    with subprocess.Popen(
        [*command, "--folder", str(tmp_path / "federation"), "--port", str(free_port())],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that runs the tests in the background may ignore SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as running:
        wait_for(running, "redis-server")
        started += children(running.pid)
        running.send_signal(number)
        out, err = running.communicate(timeout=100)
    assert (running.returncode, out, err) == (130, "", "interrupted\n")
    assert len(started) >= 2
    assert not [process for process in started if process.is_running()]
