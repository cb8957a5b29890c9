"""Segments: small blobs in one file, durable together and deleted together."""

import errno
import gc
import hashlib
import os
import pathlib
import stat
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.shared.errors import Unavailable


def named(*texts: str) -> dict[str, bytes]:
    """Blobs, keyed by their digest."""
    return {hashlib.sha256(text.encode()).hexdigest(): text.encode() for text in texts}


def read(blobs: Blobs, digest: str) -> bytes:
    with blobs.open(digest) as file:
        return file.read()


def files(blobs: Blobs) -> list[Path]:
    """The files of all segments, including unfinished ones."""
    folder = blobs.folder / "segments"
    return [*blobs.unfinished.iterdir(), *(folder.iterdir() if folder.exists() else ())]


def settled(blobs: Blobs, count: int) -> bool:
    """Waits until a thread has deleted all but this number of files."""
    while len(files(blobs)) > count:
        pass
    return len(files(blobs)) == count


def test_each_blob_of_a_segment_can_be_read_by_any_process(tmp_path: Path) -> None:
    blobs, other = Blobs(tmp_path), Blobs(tmp_path)
    some, more = named("one", "two", ""), named("three")
    blobs.put_all(some)
    blobs.put_all(more)
    alone = other.put(b"alone")
    for digest, data in {**some, **more, alone: b"alone"}.items():
        assert read(other, digest) == data
        assert blobs.exists(digest)
    assert sorted(other.digests()) == sorted([*some, *more, alone])
    assert len(files(blobs)) == 2
    with pytest.raises(FileNotFoundError):
        other.open("0" * 64)
    assert not other.exists("0" * 64)


def test_segment_is_fsynced_once_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = Blobs(tmp_path)
    blobs.put_all(named("the first one makes the folder"))
    synced, sync = list[str](), os.fsync

    def note(descriptor: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        synced.append(f"{kind}, {len(list((tmp_path / 'segments').iterdir()))} named")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    blobs.put_all(named(*map(str, range(100))))
    assert synced == ["file, 1 named", "folder, 2 named"]


def test_failed_fsync_leaves_no_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs, some = Blobs(tmp_path), named("one", "two")
    blobs.put_all(named("kept"))

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Unavailable, match="No space left"):
        blobs.put_all(some)
    monkeypatch.undo()
    assert not any(blobs.exists(digest) for digest in some)
    assert len(files(blobs)) == 1
    blobs.put_all(some)
    assert all(map(blobs.exists, some))


def test_a_segment_is_deleted_with_the_last_of_its_blobs(tmp_path: Path) -> None:
    blobs, other = Blobs(tmp_path), Blobs(tmp_path)
    one, two = some = named("one", "two")
    blobs.put_all(some)
    assert other.exists(two)
    blobs.delete([one])
    assert not blobs.exists(one)
    assert read(blobs, two) == b"two"
    blobs.delete([two, two])
    assert settled(blobs, 0)
    assert not other.exists(two), "a process notices what another one has deleted"
    with pytest.raises(FileNotFoundError):
        other.open(two)
    assert list(other.digests()) == []


def test_deleting_a_blob_removes_its_copies_in_all_segments(tmp_path: Path) -> None:
    blobs, some = Blobs(tmp_path), named("same")
    blobs.put_all(some)
    blobs.put_all(some)
    assert [read(blobs, digest) for digest in some] == [b"same"]
    blobs.delete(some)
    assert settled(blobs, 0)


def test_sweep_keeps_one_copy_of_a_blob_that_is_stored_in_every_round(tmp_path: Path) -> None:
    """The bytes stay referenced, because the last round of a run is kept."""
    blobs, other, (same, beside) = Blobs(tmp_path), Blobs(tmp_path), named("same", "beside")
    for number in range(5):
        other.put_all(named("same") if number else named("same", "beside"))
        for path in files(blobs):
            os.utime(path, (path.stat().st_mtime - 100,) * 2)
    assert read(other, same) == read(blobs, same) == b"same"
    assert blobs.sweep({same, beside}, time.time() - 50) == 3
    assert settled(blobs, 2), "the newest, and the one with the other blob"
    for store in (blobs, other, Blobs(tmp_path)):
        assert (read(store, same), read(store, beside)) == (b"same", b"beside")
    assert blobs.sweep({same}, time.time() - 50) == 1
    assert settled(blobs, 1)
    assert read(other, same) == read(blobs, same) == b"same"
    blobs.delete([same])
    assert settled(blobs, 0)


def test_sweep_keeps_segments_with_a_referenced_blob(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    kept, old, new = named("kept", "beside it"), named("old", "older"), named("new")
    for some in (kept, old):
        blobs.put_all(some)
    for path in files(blobs):
        os.utime(path, (path.stat().st_mtime - 100,) * 2)
    blobs.put_all(new)
    later = Blobs(tmp_path)
    assert later.sweep({next(iter(kept))}, time.time() - 60) == 1
    assert settled(later, 2)
    assert sorted(later.digests()) == sorted([*kept, *new])


@pytest.fixture
def traced() -> Iterator[Callable[[], int]]:
    """The size in bytes of all Python objects that were allocated since the test began.

    It excludes Python's table of interned strings: pathlib interns every name, and the table does
    not shrink when the strings are freed.
    """
    others = tracemalloc.Filter(False, pathlib.__file__)

    def held() -> int:
        gc.collect()
        result = tracemalloc.take_snapshot().filter_traces([others])
        return sum(trace.size for trace in result.traces)

    tracemalloc.start()
    yield held
    tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize("by", ["sweep", "delete", "another process"])
def test_deleted_segments_free_memory_and_disk(
    tmp_path: Path, traced: Callable[[], int], by: str
) -> None:
    """The process has read all segments, as a worker does in the course of many rounds."""
    blobs, other, kept = Blobs(tmp_path), Blobs(tmp_path), named("kept")
    blobs.put_all(kept)
    assert read(blobs, *kept) == b"kept"
    before = traced()
    gone = [named(*(f"{number} {blob}" for blob in range(20))) for number in range(40)]
    for some in gone:
        other.put_all(some)
    digests = [digest for some in gone for digest in some]
    del gone, some
    for path in files(blobs):
        os.utime(path, (path.stat().st_mtime - 100,) * 2)
    assert set(digests) <= set(blobs.digests())
    grown = traced() - before
    if by == "sweep":
        assert blobs.sweep({*kept}, time.time() - 50) == 40
    elif by == "delete":
        blobs.delete(digests)
    else:
        other.delete(digests)
        assert not blobs.exists(digests[0]), "which makes the process look at the folder again"
    del digests
    assert settled(blobs, 1), "the one that is referenced"
    assert read(blobs, *kept) == b"kept"
    left = traced() - before
    # An emptied dictionary keeps its memory.
    assert left < grown / 4, f"{left} of {grown} bytes are left"
