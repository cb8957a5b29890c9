"""Output folders are complete or do not exist."""

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from rampart_fl.services.console.reports.folder import SUMS, new_folder
from rampart_fl.shared.errors import ConfigurationError


def test_every_written_file_is_listed_with_its_digest(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "run"
    with new_folder(path) as folder:
        folder.json({"a": [1]}, "run.json")
        folder.lines((str(n) for n in range(3)), "rounds.jsonl")
        digest = folder.write([b"one", b"two"], "models", "global.safetensors")
        folder.text("name = 'x'\n", "experiment.toml")
    assert digest == hashlib.sha256(b"onetwo").hexdigest()
    assert (path / "run.json").read_text() == '{\n "a": [\n  1\n ]\n}\n'
    assert (path / "rounds.jsonl").read_text() == "0\n1\n2\n"
    assert [result.name for result in path.parent.iterdir()] == ["run"]
    lines = (path / SUMS).read_text().splitlines()
    assert f"{digest}  models/global.safetensors" in lines and len(lines) == 4


def test_all_files_and_folders_are_synced_before_the_folder_appears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, synced, sync = tmp_path / "run", set[str](), os.fsync

    def note(descriptor: int) -> None:
        name = Path(f"/proc/self/fd/{descriptor}").readlink()
        if not path.exists():
            synced.add(str(name.relative_to(tmp_path / ".run.part")))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    with new_folder(path) as folder:
        folder.text("name = 'x'\n", "experiment.toml")
        folder.write([b"one"], "models", "own", "ada.safetensors")
    missing = {str(each.relative_to(path)) for each in path.rglob("*")} - synced
    assert not missing and {".", SUMS} <= synced


@pytest.mark.processes
def test_sha256sum_verifies_the_digests_and_detects_changed_files(tmp_path: Path) -> None:
    with new_folder(tmp_path / "run") as folder:
        folder.write([b"content"], "models", "a b:c.safetensors")
    check = ["sha256sum", "--check", "--strict", SUMS]
    assert subprocess.run(check, cwd=tmp_path / "run", check=False).returncode == 0
    next((tmp_path / "run" / "models").iterdir()).write_bytes(b"other")
    assert subprocess.run(check, cwd=tmp_path / "run", check=False).returncode == 1


@pytest.mark.parametrize("name", ["../out", "/etc/out", "..", ".", "a/../../out", "..\\out"])
def test_file_names_cannot_escape_the_folder(tmp_path: Path, name: str) -> None:
    """An aggregator names clients and models, and must not choose where files are written."""
    with new_folder(tmp_path / "run") as folder:
        folder.write([b"x"], "models", name)
    assert {path.name for path in tmp_path.iterdir()} == {"run"}
    assert len(list((tmp_path / "run" / "models").iterdir())) == 1


def test_non_empty_folder_is_refused_and_empty_folder_is_filled(tmp_path: Path) -> None:
    full, empty = tmp_path / "full", tmp_path / "empty"
    full.mkdir()
    (full / "own.txt").write_text("keep")
    for path in (full, full / "own.txt"):
        with pytest.raises(ConfigurationError, match="is not an empty folder"), new_folder(path):
            pass
    assert (full / "own.txt").read_text() == "keep"
    empty.mkdir()
    with new_folder(empty) as folder:
        folder.text("x", "file")
    assert (empty / "file").exists()


def test_exception_while_writing_leaves_no_folder_behind(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), new_folder(tmp_path / "run") as folder:
        folder.text("x", "file")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
