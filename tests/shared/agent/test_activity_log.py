"""A client's activity log: one line per action, rotation by size, and truncated lines."""

import errno
import hashlib
import json
import os
import resource
import signal
import stat
from pathlib import Path

import pytest

from rampart_fl.shared.agent.acceptance import OfferAnswer
from rampart_fl.shared.agent.activity_log import NAME, ActivityLog


def test_every_action_is_logged_as_one_line(tmp_path: Path) -> None:
    log = ActivityLog(tmp_path / "client-0", clock=lambda: 1_800_000_000.25)
    log.record_decision("mnist-1", OfferAnswer(False, "model 'cnn': this client trains only mlp"))
    log.record_decision("digits-2", OfferAnswer(True, data_file=Path("own.npz")))
    log.record_training("digits-2", 3, epochs=5, samples=68, epsilon=1.25)
    log.record_upload("digits-2", 3, "update", b"bytes")
    lines = (tmp_path / "client-0" / NAME).read_text().splitlines()
    time = {"time": "2027-01-15T08:00:00.250+00:00"}
    assert [json.loads(line) for line in lines] == [
        {
            **time,
            "what": "declined",
            "run": "mnist-1",
            "reason": "model 'cnn': this client trains only mlp",
        },
        {**time, "what": "accepted", "run": "digits-2", "data": "own.npz"},
        {
            **time,
            "what": "trained",
            "run": "digits-2",
            "round": 3,
            "epochs": 5,
            "samples": 68,
            "epsilon": 1.25,
        },
        {
            **time,
            "what": "sending",
            "run": "digits-2",
            "round": 3,
            "kind": "update",
            "bytes": 5,
            "digest": hashlib.sha256(b"bytes").hexdigest(),
        },
    ]
    assert list(log.entries()) == [json.loads(line) for line in lines]


@pytest.mark.parametrize("kept", [0, 1, 3])
def test_full_files_are_rotated_and_the_oldest_deleted(tmp_path: Path, kept: int) -> None:
    log = ActivityLog(tmp_path, most_bytes=1000, kept=kept)
    for round_ in range(200):
        log.record_training("digits-1", round_, epochs=1, samples=10)
    files = sorted(tmp_path.iterdir())
    assert len(files) == kept + 1
    assert all(file.stat().st_size <= 1000 for file in files)
    rounds = [entry["round"] for entry in log.entries()]
    assert rounds == list(range(rounds[0], 200))
    assert len(rounds) > 8 * kept


def test_folder_is_synced_whenever_a_file_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, sync = list[str](), os.fsync

    def note(descriptor: int) -> None:
        synced.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    log = ActivityLog(tmp_path, most_bytes=250)
    for round_ in range(3):
        log.record_training("digits-1", round_, epochs=1, samples=10)
    assert len(list(tmp_path.iterdir())) == 2, "the third line begins a new file"
    assert synced == ["file", "folder", "file", "file", "folder"]


def test_line_longer_than_the_file_limit_is_written(tmp_path: Path) -> None:
    log = ActivityLog(tmp_path, most_bytes=10)
    log.record_decision("a-1", OfferAnswer(False, "x" * 500))
    log.record_decision("b-2", OfferAnswer(False, "y" * 500))
    assert [entry["run"] for entry in log.entries()] == ["a-1", "b-2"]


def test_line_truncated_by_a_crash_loses_only_that_entry(tmp_path: Path) -> None:
    log = ActivityLog(tmp_path)
    for round_ in range(3):
        log.record_training("a-1", round_, epochs=1, samples=10)
    file = tmp_path / NAME
    file.write_bytes(file.read_bytes()[:-20])
    ActivityLog(tmp_path).record_training("a-1", 7, epochs=1, samples=10)
    assert [entry["round"] for entry in log.entries()] == [0, 1, 7]


def test_only_the_owner_may_read_the_log(tmp_path: Path) -> None:
    log = ActivityLog(tmp_path)
    log.record_upload("a-1", 0, "update", b"")
    assert (tmp_path / NAME).stat().st_mode & 0o077 == 0


def test_line_that_does_not_fit_on_the_disk_raises_an_error_and_leaves_no_trace(
    tmp_path: Path,
) -> None:
    log, file = ActivityLog(tmp_path), tmp_path / NAME
    log.record_upload("a-1", 0, "update", b"x")
    before = file.read_bytes()
    # With this limit on the size of files, the kernel writes the first ten bytes of the next line,
    # as it does on a disk that has only ten free bytes.
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, former[1]))
        with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
            log.record_upload("a-1", 1, "update", b"x")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)
        signal.signal(signal.SIGXFSZ, handler)
    assert file.read_bytes() == before
    log.record_upload("a-1", 2, "update", b"x")
    assert [entry["round"] for entry in log.entries()] == [0, 2]


def test_line_that_is_written_in_pieces_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:7]))
    log = ActivityLog(tmp_path)
    log.record_upload("a-1", 0, "update", b"x")
    assert [entry["round"] for entry in log.entries()] == [0]
