"""Files that are replaced at once: what was there stays until the new one is whole."""

import errno
import os
from pathlib import Path

import pytest

from rampart_fl.shared.durable import replace


def test_a_file_is_replaced_and_read_by_whom_it_is_for(tmp_path: Path) -> None:
    path = tmp_path / "identity.json"
    replace(path, [b"one, ", b"two"], 0o600)
    assert path.read_bytes() == b"one, two"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_named_and_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "train.kept"
    replace(path, [b"before"])

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*train\.part'"):
        replace(path, [b"after"])
    assert path.read_bytes() == b"before"
