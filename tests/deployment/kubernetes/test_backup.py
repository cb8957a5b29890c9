"""k8s/chart/files/backup.sh copies the blobs, and leaves no run paused, even if it is stopped."""

import json
import os
import subprocess
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.processes
# A fake console with one run, which records its commands.
RAMPART = """#!/bin/sh
echo "$1" >> {folder}/commands
case $1 in
  resume) [ ! -e {folder}/over ] ;;
  runs) echo '[{{"run": "first-1", "state": "{status}"}}]' ;;
  status) echo '{{"status": "{status}", "phase": "{phase}"}}' ;;
  audit) cat {folder}/audit ;;
esac
"""
# The real tar, except that the folder `ns` changes while tar reads it, as health checks change it.
CHANGING = """#!/bin/sh
exec /bin/tar --checkpoint=1 --checkpoint-action=exec='touch {folder}/ns/new' "$@"
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


def fake(folder: Path, status: str, phase: str, tar: str, *audit: tuple[str, str]) -> None:
    """Writes the fake commands; `audit` has the acts and reasons of an audit log."""
    values = {"folder": folder, "status": status, "phase": phase}
    for name, content in {"rampart": RAMPART, "tar": tar}.items():
        (folder / "bin" / name).write_text(content.format(**values))
        (folder / "bin" / name).chmod(0o755)
    entries = [{"act": act, "reason": reason, "target": "first-1"} for act, reason in audit]
    (folder / "audit").write_text(json.dumps(entries))


def variables(folder: Path, keep: int = 2) -> dict[str, str]:
    """The variables of the script's container."""
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "KEEP": str(keep)}


def run(text: str, folder: Path, keep: int = 2) -> "subprocess.CompletedProcess[Any]":
    """Runs the whole script; the copy of Redis exists already."""
    (folder / "steps/copied").touch()
    return subprocess.run(["sh", "-c", text], env=variables(folder, keep), timeout=120)


@pytest.mark.parametrize("keep", [1, 2])
def test_backup_has_all_blobs_of_folders_that_change_meanwhile(
    root: Path, tmp_path: Path, keep: int
) -> None:
    text = script(root, tmp_path)
    fake(tmp_path, "running", "published", CHANGING)
    blob, unfinished = tmp_path / "ns/first-1/ab/abcd", tmp_path / "ns/first-1/tmp/half"
    for file in (blob, unfinished):
        file.parent.mkdir(parents=True)
        file.write_bytes(bytes(100_000))
    for day in (1, 2, 3):
        (tmp_path / f"backups/2020-01-0{day}T03-00-00Z").mkdir()
    assert run(text, tmp_path, keep).returncode == 0
    newest, *older = sorted((tmp_path / "backups").iterdir(), reverse=True)
    assert [one.name[:10] for one in older] == ["2020-01-03"][: keep - 1]
    with tarfile.open(newest / "blobs.tar") as archive:
        names = archive.getnames()
    assert "./ns/first-1/ab/abcd" in names
    assert not [name for name in names if "half" in name]
    assert (tmp_path / "commands").read_text().split()[-1] == "resume"


@pytest.mark.parametrize(("phase", "code"), [("done", 0), ("published", 1)])
def test_backup_succeeds_if_the_run_ended_meanwhile(
    root: Path, tmp_path: Path, phase: str, code: int
) -> None:
    text = script(root, tmp_path)
    fake(tmp_path, "running", phase, CHANGING)
    (tmp_path / "over").touch()
    assert run(text, tmp_path).returncode == code
    assert (tmp_path / "commands").read_text().split()[-2:] == ["resume", "status"]


def test_backup_that_cannot_copy_fails_and_keeps_earlier_backups(
    root: Path, tmp_path: Path
) -> None:
    text = script(root, tmp_path)
    fake(tmp_path, "running", "published", "#!/bin/sh\nexit 2\n")
    (tmp_path / "backups/2020-01-01T03-00-00Z").mkdir()
    assert run(text, tmp_path, 1).returncode != 0
    assert (tmp_path / "backups/2020-01-01T03-00-00Z").exists()
    assert (tmp_path / "steps/failed").exists()
    assert (tmp_path / "commands").read_text().split()[-1] == "resume"


@pytest.mark.parametrize(
    ("audit", "resumes"),
    [
        ([("pause", "maintenance")], False),
        ([("pause", "backup")], True),
        ([("pause", "backup"), ("resume", "backup"), ("pause", "maintenance")], False),
        ([("pause", "maintenance"), ("resume", ""), ("pause", "backup"), ("evict", "")], True),
        ([], False),
    ],
)
def test_backup_resumes_a_run_that_only_a_dead_backup_has_paused(
    root: Path, tmp_path: Path, audit: list[tuple[str, str]], resumes: bool
) -> None:
    text = script(root, tmp_path)
    fake(tmp_path, "paused", "published", CHANGING, *audit)
    assert run(text, tmp_path).returncode == 0
    commands = (tmp_path / "commands").read_text().split()
    assert "pause" not in commands
    assert ("resume" in commands) == resumes


@pytest.mark.parametrize("waits_for", ["round", "copy of Redis", "copy of the blobs"])
def test_stopped_backup_resumes_the_federation_at_once(
    root: Path, tmp_path: Path, waits_for: str
) -> None:
    text = script(root, tmp_path)
    phase = "collecting" if waits_for == "round" else "published"
    fake(tmp_path, "running", phase, SLOW)
    if waits_for == "copy of the blobs":
        (tmp_path / "steps/copied").touch()
    child = subprocess.Popen(["sh", "-c", text], env=variables(tmp_path))
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
