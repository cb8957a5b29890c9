"""Folders for results: one process at a time writes to a folder, and no lock outlives it."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rampart_fl.services.console.folder_lock import NAME, locked
from rampart_fl.shared.errors import ConfigurationError

HOLDER = """
import sys, time
from pathlib import Path
from rampart_fl.services.console.folder_lock import locked

with locked(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(600)  # The test kills this process.
"""
SMALL = """
name = "small"
rounds = 1
[data]
dataset = "digits"
clients = 3
samples = 20
[model]
name = "mlp"
hidden = [4]
[training]
epochs = 1
[server.customizer]
name = "flcert"
groups = 3
"""
SWEEP = "[sweep]\nseeds = [1, 2]\n"
MATRIX = "matrix small.toml --attacks none --defences median --seeds 2 --jobs 2"
COMMANDS = {
    "simulate": "simulate small.toml --out",
    "sweep": "simulate sweep.toml --jobs 2 --out",
    "certify": "certify small.toml --out",
    "matrix": f"{MATRIX} --out",
    "reproduce": "reproduce fedcap-table-1 --scale smoke --out",
}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(SMALL)
    axis = "server.learning_rate = [0.5, 1.0]\n"
    (tmp_path / "sweep.toml").write_text(SMALL + SWEEP + axis)
    return tmp_path


@pytest.mark.parametrize("name", COMMANDS)
def test_second_command_on_a_folder_fails_before_it_writes_anything(
    rampart: Callable[..., Any], files: Path, name: str
) -> None:
    with locked(files / "out"):
        said = rampart(*COMMANDS[name].split(), "out")
        assert said.code == 1
        expected = f"process {os.getpid()} writes to the folder out: wait until it ends"
        assert expected in said.err
        assert [path.name for path in (files / "out").iterdir()] == [NAME]
    assert not (files / "out").exists()


@pytest.mark.processes
@pytest.mark.parametrize(
    "name",
    [
        "simulate",
        pytest.param("sweep", marks=pytest.mark.long),
        "certify",
        pytest.param("matrix", marks=pytest.mark.long),
    ],
)
def test_command_and_its_processes_leave_no_lock_behind(
    rampart: Callable[..., Any], files: Path, name: str
) -> None:
    said = rampart(*COMMANDS[name].split(), "out")
    assert said.code == 0, said.err
    assert (files / "out").is_dir()
    assert not list((files / "out").rglob(f"*{NAME}*"))


@pytest.mark.processes
def test_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None and holder.stdout.readline() == "locked\n"
            expected = f"process {holder.pid} writes to the folder {tmp_path}"
            with pytest.raises(ConfigurationError, match=expected), locked(tmp_path):
                pass
            assert (tmp_path / NAME).exists(), "a refused process does not remove the lock"
        finally:
            holder.send_signal(signal.SIGKILL)
    with locked(tmp_path):
        assert (tmp_path / NAME).read_text() == f"{os.getpid()}\n"
    assert tmp_path.exists() and not list(tmp_path.iterdir())


def test_lock_file_that_is_removed_while_it_is_opened_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The previous owner removes its file after another process has opened it."""
    from rampart_fl.services.console import folder_lock

    path, removed = tmp_path / NAME, []

    def late(file: Any) -> bool:
        if not removed:
            path.unlink()
            removed.append(file)
        return first(file)

    first = folder_lock.try_lock
    monkeypatch.setattr(folder_lock, "try_lock", late)
    with locked(tmp_path):
        monkeypatch.undo()
        with pytest.raises(ConfigurationError, match="writes to the folder"), locked(tmp_path):
            pass


def test_folder_that_is_not_needed_is_not_locked() -> None:
    with locked(None), locked(None):
        pass
