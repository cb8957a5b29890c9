"""Atomic replacement of files: the old file stays until the new one is complete."""

import errno
import os
import stat
from pathlib import Path

import pytest

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.runtime.durable import create, new_folder, replace, replace_text, replacing


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


def test_text_is_replaced_in_utf_8(tmp_path: Path) -> None:
    replace_text(tmp_path / "result.json", "änne\n")
    assert (tmp_path / "result.json").read_bytes() == "änne\n".encode()


def test_created_file_is_synced_and_never_replaces_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, sync = list[int](), os.fsync

    def note(descriptor: int) -> None:
        sizes.append(os.fstat(descriptor).st_size)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    create(tmp_path / "model", [b"one, ", b"two"])
    assert sizes == [8], "synced after its last byte"
    with pytest.raises(FileExistsError):
        create(tmp_path / "model", [b"other"])
    assert (tmp_path / "model").read_bytes() == b"one, two"


def test_error_names_the_new_folder_and_not_the_temporary_one(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "new"
    with pytest.raises(ConfigurationError) as refused, new_folder(path):
        pass
    assert str(refused.value) == f"cannot make the folder {path}: Not a directory"


def test_new_folder_appears_complete_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "run"
    with pytest.raises(ZeroDivisionError), new_folder(path) as part:
        create(part / "file", [b"half"])
        raise ZeroDivisionError
    assert not list(path.parent.iterdir())
    with new_folder(path) as part:
        create(part / "file", [b"content"])
        assert not path.exists()
    assert (path / "file").read_bytes() == b"content"
    assert list(path.parent.iterdir()) == [path]
