"""Folders of served federations: one process serves each, and says when it is ready."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rampart_fl.services.console.launcher.federation_folder import ServedFolder, ShutdownTimeout
from rampart_fl.services.console.launcher.processes import ChildFailed
from rampart_fl.shared.errors import ConfigurationError

pytestmark = pytest.mark.processes

SERVER = """
import signal, sys, time
from pathlib import Path
from rampart_fl.services.console.launcher.federation_folder import ServedFolder

def end(number, frame):
    raise SystemExit(0)

signal.signal(signal.SIGTERM, signal.SIG_IGN if "deaf" in sys.argv else end)
folder = ServedFolder(Path(sys.argv[1]))
with folder.lock():
    folder.record_process("aggregator", 12)
    folder.announce("http://127.0.0.1:1")
    time.sleep(60)
"""


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    with (folder.parent / "log").open("wb") as log:
        command = [sys.executable, "-c", SERVER, str(folder), *arguments]
        child = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield child
        finally:
            child.kill()
            child.wait()


@pytest.mark.parametrize("name", ["nosuch", "file/nosuch"])
def test_shutdown_without_a_federation_creates_no_folder(
    rampart: Callable[..., Any], tmp_path: Path, name: str
) -> None:
    (tmp_path / "file").touch()
    said = rampart("shutdown", "--folder", str(tmp_path / name))
    assert said.out == f"no federation is served from {tmp_path / name}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_served_folder_is_locked_until_it_is_shut_down(tmp_path: Path) -> None:
    folder = ServedFolder(tmp_path / "federation")
    assert folder.server() is None
    assert folder.shut_down() is False
    with serving(folder.path) as child:
        assert folder.await_ready(child, tmp_path / "log", 30) == "http://127.0.0.1:1"
        assert folder.server() == child.pid
        assert (folder.path / "pids/aggregator").read_text() == "12\n"
        expected = f"process {child.pid} already serves .* rampart shutdown stops it"
        with pytest.raises(ConfigurationError, match=expected), folder.lock():
            pass
        assert folder.shut_down(30) is True
        assert child.wait(10) == 0
    assert folder.server() is None
    assert {path.name for path in folder.path.rglob("*")} == {"pids", "serve.lock"}
    with folder.lock():
        pass


def test_killed_server_leaves_no_lock_and_is_not_reported_as_ready(tmp_path: Path) -> None:
    folder, log = ServedFolder(tmp_path / "federation"), tmp_path / "log"
    with serving(folder.path) as child:
        folder.await_ready(child, log, 30)
        child.kill()
        child.wait()
        assert folder.server() is None
        assert folder.shut_down() is False
        with pytest.raises(ChildFailed, match="exited with code -9"):
            folder.await_ready(child, log, 30)
    with serving(folder.path) as later:
        folder.await_ready(later, log, 30)
        assert folder.server() == later.pid


def test_failed_server_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    folder = ServedFolder(tmp_path / "federation")
    with folder.lock(), serving(folder.path) as child:
        expected = r"exited with code 1; see .*: .*already serves .*"
        with pytest.raises(ChildFailed, match=expected):
            folder.await_ready(child, tmp_path / "log", 30)


@pytest.mark.parametrize(
    ("output", "cause"),
    [("a warning\nerror: port 1 is in use\nbye\n", "port 1 is in use"), ("", "it wrote nothing")],
)
def test_only_the_cause_of_this_failure_is_reported(
    tmp_path: Path, output: str, cause: str
) -> None:
    folder, log = ServedFolder(tmp_path / "federation"), tmp_path / "log"
    log.write_text("error: an earlier cause\nhttp://127.0.0.1:1 is ready\n")
    with log.open("ab") as file:
        since = file.tell()
        child = subprocess.Popen(["sh", "-c", f"printf '{output}'; exit 1"], stdout=file)
    with pytest.raises(ChildFailed) as failed:
        folder.await_ready(child, log, 30, since)
    assert str(failed.value) == f"rampart serve exited with code 1; see {log}: {cause}"


def test_shutdown_of_a_hanging_server_raises_a_timeout(tmp_path: Path) -> None:
    folder = ServedFolder(tmp_path / "federation")
    with serving(folder.path, "deaf") as child:
        folder.await_ready(child, tmp_path / "log", 30)
        with pytest.raises(ShutdownTimeout, match=f"process {child.pid} still serves"):
            folder.shut_down(0.2)
