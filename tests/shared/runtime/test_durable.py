"""Atomic replacement of files: the old file stays until the new one is complete."""

import errno
import os
import stat
from pathlib import Path

import pytest

from rampart_fl.shared.runtime.durable import replace, replacing


def test_replaced_file_has_the_given_content_and_permissions(tmp_path: Path) -> None:
    path = tmp_path / "identity.json"
    replace(path, [b"one, ", b"two"], 0o600)
    assert path.read_bytes() == b"one, two"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_full_disk_is_reported_and_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "train.kept"
    replace(path, [b"before"])

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*train\.part\.kept'"):
        replace(path, [b"after"])
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_file_is_synced_before_the_rename_and_its_folder_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, synced, sync = tmp_path / "new", list[tuple[str, bool]](), os.fsync

    def note(descriptor: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        synced.append((kind, path.exists()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    replace(path, [b"bytes"])
    assert synced == [("file", False), ("folder", True)]


def test_leftover_file_of_a_crash_does_not_affect_permissions(tmp_path: Path) -> None:
    path = tmp_path / "identity.json"
    (tmp_path / "identity.part.json").write_text("readable by all")
    replace(path, [b"secret"], 0o600)
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_concurrent_writers_use_separate_temporary_files(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    with replacing(path, several=True) as first:
        first.write_bytes(b"first")
        with replacing(path, several=True) as second:
            assert (second.suffix, second == first) == (".npz", False)
            second.write_bytes(b"second")
        assert path.read_bytes() == b"second"
    assert path.read_bytes() == b"first"


def test_failed_write_leaves_no_file_and_keeps_its_error_message(tmp_path: Path) -> None:
    path = tmp_path / "kernels.so"
    with pytest.raises(OSError, match=r"^cc failed$"), replacing(path) as part:
        part.write_bytes(b"half")
        raise OSError("cc failed")
    assert not list(tmp_path.iterdir())
