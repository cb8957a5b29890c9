"""Blobs: immutable bytes keyed by their SHA-256, in a local folder.

The store writes a blob to a temporary file, fsyncs this file, and renames it to the blob's digest;
then the store fsyncs the folder. Small blobs that arrive together share one file (segments.py),
which is stored in the same way. As soon as the writer of a blob has returned the digest, the blob
survives a power failure. If RAMPART_BLOBS is the URL of an object store, the object store holds the
blobs, and the folder is only a cache (see object_blobs.py). Each run has its own blobs
(run_blobs.py).
"""

import hashlib
import io
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from math import inf
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Protocol

from rampart_fl.services.aggregator.state.segments import Segments
from rampart_fl.shared.errors import Unavailable
from rampart_fl.shared.runtime import durable

Buffer = bytes | bytearray | memoryview


class BlobReader(Protocol):
    """An object that opens blobs by their digests."""

    def open(self, digest: str) -> BinaryIO:
        """Opens a blob."""
        ...


@contextmanager
def converted_disk_errors(*expected: type[OSError]) -> Iterator[None]:
    """Converts disk errors to `Unavailable`, except errors of the types in `expected`."""
    try:
        yield
    except expected:
        raise
    except OSError as error:
        raise Unavailable(f"blobs: {error.strerror or error}") from error


class BlobWriter:
    """A blob that is being written; the end of its `with` block deletes uncommitted bytes."""

    def __init__(self, store: "Blobs", path: Path) -> None:
        self._store = store
        self.path = path
        self._file = path.open("xb", buffering=0)
        self._hash = hashlib.sha256()
        self.size = 0

    @converted_disk_errors()
    def write(self, data: Buffer) -> None:
        """Appends bytes."""
        view = memoryview(data).cast("B")
        self._hash.update(view)
        self.size += len(view)
        while view:
            view = view[self._file.write(view) :]

    def reader(self) -> BinaryIO:
        """Opens the bytes written so far, so that they can be checked before the commit."""
        return self.path.open("rb")

    @property
    def digest(self) -> str:
        """SHA-256 of the bytes written so far."""
        return self._hash.hexdigest()

    @converted_disk_errors()
    def commit(self) -> str:
        """Makes the blob durable and returns its digest."""
        self._file.close()
        self._store.adopt(self.path, self.digest)
        return self.digest

    @converted_disk_errors()
    def discard(self) -> None:
        """Deletes the bytes unless they were committed."""
        self._file.close()
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> "BlobWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.discard()


class Blobs:
    """Blobs in a local folder: blob abcdef... is the file `ab/abcdef...`, or a part of a segment.

    `tmp/` holds unfinished files.
    """

    groups = True
    """Whether `put_all` is faster than committing each blob separately."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.unfinished = folder / "tmp"
        self.unfinished.mkdir(parents=True, exist_ok=True)
        self._deleter = ThreadPoolExecutor(1, thread_name_prefix="blob-deletion")
        self._segments = Segments(folder / "segments", self.unfinished, self._remove)

    @converted_disk_errors()
    def writer(self) -> BlobWriter:
        """Starts a new blob."""
        return BlobWriter(self, self.unfinished / secrets.token_hex(16))

    def put(self, data: Buffer) -> str:
        """Stores bytes as a blob, and returns its digest."""
        with self.writer() as writer:
            writer.write(data)
            return writer.commit()

    @converted_disk_errors()
    def put_all(self, blobs: Mapping[str, bytes | bytearray]) -> None:
        """Makes small blobs durable together.

        Args:
            blobs: the bytes, keyed by their digest.
        """
        self._segments.add(blobs)

    def growth(self, blobs: int, blob_bytes: int) -> int:
        """The maximum growth of the folder in bytes if this many blobs of this size are added."""
        return blobs * blob_bytes

    def path(self, digest: str) -> Path:
        """The path of a blob that has its own file."""
        return self.folder / digest[:2] / digest

    @converted_disk_errors(FileNotFoundError)
    def open(self, digest: str) -> BinaryIO:
        """Opens a blob; raises `FileNotFoundError` if it does not exist."""
        small = self._segments.read_known(digest)
        if small is None:
            try:
                return self.path(digest).open("rb")
            except FileNotFoundError:
                small = self._segments.read(digest)
                if small is None:
                    raise
        return io.BytesIO(small)

    def exists(self, digest: str) -> bool:
        """Whether a blob exists."""
        return self.path(digest).exists() or self._segments.holds(digest)

    @converted_disk_errors()
    def delete(self, digests: Iterable[str], before: float = inf) -> dict[str, float]:
        """Deletes the blobs that were stored before a Unix time; ignores blobs that do not exist.

        Returns:
            For each kept blob, the time at which it was stored, keyed by digest. A blob is kept if
            it was stored at the time `before` or later.
        """
        later = dict[str, float]()
        for digest in digests:
            if before < inf and (stored_at := self.stored_at(digest)) >= before:
                later[digest] = stored_at
            else:
                self._delete(digest)
        return later

    def _delete(self, digest: str) -> None:
        if not self._remove(self.path(digest)):
            self._segments.delete([digest])

    def stored_at(self, digest: str) -> float:
        """The Unix time at which a blob was last stored; -inf if it does not exist."""
        try:
            return self.path(digest).stat().st_ctime  # the time of the rename
        except FileNotFoundError:
            return self._segments.stored_at(digest)

    def _remove(self, path: Path) -> bool:
        """Deletes a file; returns whether it existed."""
        gone = self.unfinished / secrets.token_hex(16)
        try:
            path.rename(gone)
        except FileNotFoundError:
            return False
        # Deleting a large file is slow, so another thread does it.
        self._deleter.submit(gone.unlink, missing_ok=True)
        return True

    def digests(self) -> Iterator[str]:
        """The digests of all blobs."""
        yield from self._segments.digests().union(self._file_digests())

    def _file_digests(self) -> Iterator[str]:
        """The digests of the blobs that have their own file."""
        for folder in self.folder.iterdir():
            if len(folder.name) == 2 and folder.is_dir():
                yield from (path.name for path in folder.iterdir())

    @converted_disk_errors()
    def sweep(self, referenced: set[str], before: float) -> int:
        """Deletes unreferenced blobs and temporary files that were stored before a Unix time.

        `referenced` may lack a blob that was stored shortly before the references were read. The
        time `before` must therefore be earlier than this read, at least by the duration of an
        upload.

        Returns:
            The number of deleted files.
        """
        removed = 0
        stale = [path for path in self.unfinished.iterdir() if _modified(path) < before]
        for digest in self._file_digests():
            if digest not in referenced and _modified(self.path(digest)) < before:
                self._remove(self.path(digest))
                removed += 1
        removed += self._segments.sweep(referenced, before)
        for path in stale:
            path.unlink(missing_ok=True)
        return removed + len(stale)

    @converted_disk_errors()
    def clear(self) -> None:
        """Deletes all blobs and temporary files, and the folder itself."""
        self._deleter.shutdown(wait=True)
        shutil.rmtree(self.folder, ignore_errors=False)

    @converted_disk_errors()
    def adopt(self, path: Path, digest: str) -> None:
        """Moves a finished file into the store; when the call returns, the blob is durable.

        Args:
            path: the file, on the same disk as the store's folder.
            digest: SHA-256 of the file's bytes, which this method does not check.
        Raises:
            Unavailable: the disk or the object store reports an error.
        """
        target = self.path(digest)
        if not target.parent.exists():
            target.parent.mkdir(exist_ok=True)
            durable.sync_folder(self.folder)
        durable.place(path, target)


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return float("inf")
