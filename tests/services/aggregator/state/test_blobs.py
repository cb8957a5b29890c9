"""Blobs: durable, named by their content, and deleted when nothing refers to them."""

import errno
import hashlib
import os
import random
import resource
import stat
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.aggregator.state.object_blobs import PIECE, ObjectBlobs
from rampart_fl.services.aggregator.state.run_blobs import RunBlobs
from rampart_fl.services.console.launcher.processes import free_port
from rampart_fl.shared.errors import ConfigurationError, Unavailable

DATA = b"some bytes"
DIGEST = hashlib.sha256(DATA).hexdigest()
Make = Callable[[], Blobs]


@pytest.fixture(params=["folder", "memory"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    """Each kind of store; the object store is obstore's in-memory store."""
    place = str(tmp_path / "blobs") if request.param == "folder" else "memory://"
    return RunBlobs(place, tmp_path / "cache").of_run("test-1")


def read(blobs: Blobs, digest: str) -> bytes:
    with blobs.open(digest) as file:
        return file.read()


def age(blobs: Blobs, digest: str, seconds: float) -> None:
    """Makes a blob in the folder look older."""
    path = blobs.path(digest)
    moment = path.stat().st_mtime - seconds
    os.utime(path, (moment, moment))


def test_committed_blob_is_stored_under_its_content_hash(blobs: Blobs) -> None:
    with blobs.writer() as writer:
        writer.write(DATA[:4])
        writer.write(memoryview(DATA)[4:])
        assert not blobs.exists(DIGEST)
        assert (writer.digest, writer.size) == (DIGEST, len(DATA))
        with writer.reader() as file:
            assert file.read() == DATA
        assert writer.commit() == DIGEST
    assert blobs.exists(DIGEST)
    assert read(blobs, DIGEST) == DATA
    assert blobs.put(bytearray(DATA)) == DIGEST, "the same bytes are one blob"
    assert list(blobs.digests()) == [DIGEST]


def test_uncommitted_blob_leaves_no_file(blobs: Blobs) -> None:
    with pytest.raises(KeyError), blobs.writer() as writer:
        writer.write(DATA)
        raise KeyError
    writer.discard()
    assert list(blobs.digests()) == []
    assert list((blobs.folder / "tmp").iterdir()) == []
    with pytest.raises(FileNotFoundError):
        blobs.open(DIGEST)


def test_deleting_a_blob_twice_is_not_an_error(blobs: Blobs) -> None:
    blobs.put(DATA)
    blobs.delete([DIGEST])
    blobs.delete([DIGEST])
    assert not blobs.exists(DIGEST)


def test_put_fsyncs_the_file_and_its_folder_before_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = Blobs(tmp_path)
    synced: list[str] = []
    sync = os.fsync

    def note(descriptor: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        synced.append(f"{kind}, {'named' if blobs.exists(DIGEST) else 'not named'}")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    blobs.put(DATA)
    assert synced == ["folder, not named", "file, not named", "folder, named"]


def test_sweep_removes_old_unreferenced_blobs_and_abandoned_writes(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    kept, old, new = (blobs.put(data) for data in (b"kept", b"old", b"new"))
    age(blobs, kept, 100)
    age(blobs, old, 100)
    crashed = blobs.writer()
    crashed.write(DATA)
    os.utime(crashed.path, (1, 1))
    running = blobs.writer()
    assert blobs.sweep({kept}, time.time() - 60) == 2
    assert sorted(blobs.digests()) == sorted([kept, new])
    while len(list((tmp_path / "tmp").iterdir())) > 1:
        pass  # The files of deleted blobs are removed in the background.
    assert list((tmp_path / "tmp").iterdir()) == [running.path]
    running.discard()
    crashed.discard()


def test_storing_a_blob_again_resets_its_age(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    blobs.put(DATA)
    age(blobs, DIGEST, 100)
    blobs.put(DATA)
    assert blobs.sweep(set(), time.time() - 60) == 0


def test_sweep_of_an_object_store_uses_the_timestamps_of_the_store(tmp_path: Path) -> None:
    blobs = ObjectBlobs("memory://", tmp_path)
    kept, old = blobs.put(b"kept"), blobs.put(b"old")
    assert blobs.sweep({kept}, time.time() - 60) == 0
    Blobs._delete(blobs, old)  # Deletes it only from the cache.
    assert blobs.sweep({kept}, time.time() + 1) >= 1
    assert (blobs.exists(kept), blobs.exists(old)) == (True, False)


def test_blob_missing_from_the_cache_is_fetched_from_the_object_store(tmp_path: Path) -> None:
    blobs = ObjectBlobs("memory://", tmp_path)
    blobs.put(DATA)
    Blobs._delete(blobs, DIGEST)
    assert blobs.exists(DIGEST)
    assert read(blobs, DIGEST) == DATA
    assert Blobs.exists(blobs, DIGEST), "and fills the cache again"


def test_cache_stays_within_its_size_limit(tmp_path: Path) -> None:
    blobs = ObjectBlobs("memory://", tmp_path, most=1000)
    digests = [blobs.put(bytes([number]) * 100) for number in range(30)]
    cached = [digest for digest in digests if Blobs.exists(blobs, digest)]
    assert len(cached) <= 10
    assert digests[-1] in cached
    assert all(read(blobs, digest) == bytes([n]) * 100 for n, digest in enumerate(digests))
    assert len(list(blobs.digests())) <= 10


def test_cache_evicts_the_least_recently_read_blobs_first(tmp_path: Path) -> None:
    blobs = ObjectBlobs("memory://", tmp_path, most=1000)
    digests = [blobs.put(bytes([number]) * 100) for number in range(9)]
    for number, digest in enumerate(digests):
        os.utime(blobs.path(digest), (number, number))
    assert read(blobs, digests[0]) == bytes(100)
    blobs.put(b"x" * 150)
    gone = [digest for digest in digests if not Blobs.exists(blobs, digest)]
    assert gone == digests[1:3]


def test_a_damaged_object_is_never_served(tmp_path: Path) -> None:
    blobs = ObjectBlobs("memory://", tmp_path)
    blobs._obstore.put(blobs._remote, DIGEST, b"other bytes")
    with pytest.raises(Unavailable, match="damaged"):
        blobs.open(DIGEST)


@pytest.fixture
def large(tmp_path: Path) -> ObjectBlobs:
    """An object store on disk, which sends its objects in pieces, with an empty cache."""
    (tmp_path / "store").mkdir()
    return ObjectBlobs((tmp_path / "store").as_uri(), tmp_path / "cache")


def test_object_is_downloaded_in_pieces_with_bounded_memory(large: ObjectBlobs) -> None:
    data = random.Random(0).randbytes(16 * PIECE + 1)
    digest = large.put(data)
    large.clear_cache()
    large.unfinished.mkdir(parents=True)
    tracemalloc.start()
    try:
        large.open(digest).close()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 4 * PIECE
    assert read(large, digest) == data


def test_cache_grows_up_to_its_limit_and_by_one_blob(tmp_path: Path) -> None:
    """Two runs share the limit. Beyond it, the cache deletes the oldest blobs."""
    runs = RunBlobs("memory://", tmp_path, most=1000)
    one, other = runs.of_run("one"), runs.of_run("other")
    assert (one.growth(3, 100), one.growth(10, 100), one.growth(50, 100)) == (300, 1000, 1100)
    for number in range(4):
        other.put(bytes([number]) * 100)
    assert (one.growth(3, 100), one.growth(50, 100), other.growth(50, 100)) == (300, 700, 700)
    assert isinstance(one, ObjectBlobs)
    before = sum(size for _, size, _ in one._held())
    most = 0
    for number in range(50):
        one.put(bytes([number]) * 100)
        most = max(most, sum(size for _, size, _ in one._held()))
    assert most - before <= 700
    assert Blobs(tmp_path / "folder").growth(50, 100) == 5000
    assert ObjectBlobs("memory://", tmp_path / "unlimited").growth(50, 100) == 5000


def test_interrupted_download_leaves_no_file(
    large: ObjectBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []

    class Broken:
        def get(self, *_: object) -> "Broken":
            return self

        def stream(self, size: int) -> Iterator[bytes]:
            for _ in range(3):
                yield bytes(size)
                (unfinished,) = large.unfinished.iterdir()
                sizes.append(unfinished.stat().st_size)
            raise RuntimeError("connection lost")

    monkeypatch.setattr(large, "_obstore", Broken())
    with pytest.raises(Unavailable, match="connection lost"):
        large.open(DIGEST)
    assert sizes == [PIECE, 2 * PIECE, 3 * PIECE], "each piece is written before the next is read"
    assert [path for path in large.folder.rglob("*") if path.is_file()] == []


def test_object_store_errors_raise_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = ObjectBlobs("memory://", tmp_path)

    class Broken:
        def put(self, *_: object) -> None:
            raise RuntimeError("no route")

        get = head = delete = list = put

    monkeypatch.setattr(blobs, "_obstore", Broken())
    with pytest.raises(Unavailable, match="no route"):
        blobs.put(DATA)
    reads = (blobs.open, blobs.exists, lambda digest: blobs.delete([digest]))
    for ask in (*reads, lambda digest: blobs.sweep({digest}, time.time())):
        with pytest.raises(Unavailable, match="no route"):
            ask(DIGEST)
    assert not Blobs.exists(blobs, DIGEST), "what is not in the store is not in its cache"


@pytest.mark.parametrize("place", ["folder", "memory://"])
def test_check_of_a_working_store_succeeds_and_leaves_no_file(place: str, tmp_path: Path) -> None:
    location = place if "://" in place else str(tmp_path / place)
    RunBlobs(location, tmp_path / "cache").check()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_check_fails_if_the_object_store_does_not_answer(tmp_path: Path) -> None:
    blobs = RunBlobs(f"http://127.0.0.1:{free_port()}/blobs", tmp_path)
    with pytest.raises(Unavailable, match="object store"):
        blobs.check()


def test_check_fails_if_the_blob_folder_is_missing(tmp_path: Path) -> None:
    blobs = RunBlobs(str(tmp_path / "blobs"), tmp_path)
    blobs.check()
    (tmp_path / "blobs").rmdir()
    with pytest.raises(Unavailable, match="No such file or directory"):
        blobs.check()


def test_unknown_object_store_scheme_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError,
        match=r"RAMPART_BLOBS is 'ftp://x', which cannot be opened: [^\n]*URL[^\n]*$",
    ):
        RunBlobs("ftp://x", tmp_path)


@contextmanager
def full_disk() -> Iterator[None]:
    """Limits the size of this process's files, to imitate a full disk.

    Use it only within one test: the output of the test runner may also go to a file.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_full_disk_raises_unavailable_and_leaves_no_file(tmp_path: Path) -> None:
    blobs = RunBlobs(str(tmp_path), tmp_path)
    run = blobs.of_run("test-1")
    for ask in (lambda: run.put(DATA), blobs.check):
        with full_disk(), pytest.raises(Unavailable, match="File too large"):
            ask()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_put_raises_unavailable_if_the_temporary_folder_is_missing(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    (tmp_path / "tmp").rmdir()
    with pytest.raises(Unavailable, match="No such file or directory"):
        blobs.put(DATA)


def test_too_many_open_files_raise_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = Blobs(tmp_path)
    blobs.put(DATA)

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(Path, "open", fail)
    for ask in (blobs.writer, lambda: blobs.open(DIGEST)):
        with pytest.raises(Unavailable, match="Too many open files"):
            ask()
