"""k8s/chart/files/backup.sh resumes the federation even if Kubernetes stops it."""

import os
import subprocess
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes
# A fake console with a running run, which records its commands.
RAMPART = """#!/bin/sh
echo "$1" >> {folder}/commands
case $1 in
  runs) echo '[{{"run": "first-1", "state": "running"}}]' ;;
  status) echo '{{"status": "running", "phase": "{phase}"}}' ;;
esac
"""
SLOW = """#!/bin/sh
touch {folder}/copying
exec sleep 60
"""


def script(root: Path, folder: Path) -> str:
    """The script with the folders of the test."""
    text = (root / "k8s/chart/files/backup.sh").read_text()
    for name in ("backups", "steps", "bin"):
        (folder / name).mkdir()
        text = text.replace(f"/{name}/", f"{folder / name}/").replace(
            f"/{name} ", f"{folder / name} "
        )
    return text.replace("/var/lib/rampart/blobs", str(folder))


@pytest.mark.parametrize("waits_for", ["round", "copy of Redis", "copy of the blobs"])
def test_stopped_backup_resumes_the_federation_at_once(
    root: Path, tmp_path: Path, waits_for: str
) -> None:
    text = script(root, tmp_path)
    phase = "collecting" if waits_for == "round" else "published"
    fakes = {
        "rampart": RAMPART.format(folder=tmp_path, phase=phase),
        "tar": SLOW.format(folder=tmp_path),
    }
    for name, content in fakes.items():
        (tmp_path / "bin" / name).write_text(content)
        (tmp_path / "bin" / name).chmod(0o755)
    if waits_for == "copy of the blobs":
        (tmp_path / "steps/copied").touch()
    child = subprocess.Popen(
        ["sh", "-c", text],
        env={**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "KEEP": "2"},
    )
    commands = tmp_path / "commands"
    reached = {
        "round": lambda: commands.exists() and commands.read_text().count("status") >= 2,
        "copy of Redis": (tmp_path / "steps/paused").exists,
        "copy of the blobs": (tmp_path / "copying").exists,
    }[waits_for]
    try:
        end = time.monotonic() + 60
        while not reached():
            assert child.poll() is None
            assert time.monotonic() < end
            time.sleep(0.02)
        child.terminate()
        assert child.wait(20) == 143
    finally:
        child.kill()
        child.wait()
    lines = commands.read_text().split()
    assert lines.count("pause") == lines.count("resume") == 1
    assert lines[-1] == "resume"
    assert (tmp_path / "steps/failed").exists()
