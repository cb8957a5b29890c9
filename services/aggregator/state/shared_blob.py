"""Unfinished blobs that several processes of one machine write together.

Each process writes its own part of a blob's bytes.
"""

import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rampart_fl.services.aggregator.state.blobs import Blobs, Buffer, converted_disk_errors


class SharedBlob:
    """An unfinished blob that several processes write; each process has its own object.

    No process hashes the bytes while it writes them, because a digest needs all bytes in order.
    Once all bytes are written, one process reads the file again to compute the digest.

    Args:
        store: the store to which the finished blob will belong.
        path: the unfinished file, which one of the processes made with `created`.
    """

    def __init__(self, store: Blobs, path: Path) -> None:
        self._store = store
        self.path = path
        with converted_disk_errors():
            self._descriptor = os.open(path, os.O_RDWR)

    @staticmethod
    @contextmanager
    def created(store: Blobs, size: int) -> Iterator[Path]:
        """Creates a file of `size` bytes for a `with` block.

        At the end of the block, deletes the file if it was not committed.
        """
        path = store.unfinished / secrets.token_hex(16)
        try:
            with converted_disk_errors(), path.open("xb") as file:
                file.truncate(size)
            yield path
        finally:
            with converted_disk_errors():
                path.unlink(missing_ok=True)

    @converted_disk_errors()
    def write_at(self, offset: int, data: Buffer) -> None:
        """Writes bytes to the file, starting at an offset."""
        view = memoryview(data).cast("B")
        while view:
            written = os.pwrite(self._descriptor, view, offset)
            view, offset = view[written:], offset + written

    @converted_disk_errors()
    def digest(self) -> str:
        """SHA-256 of the file; call this method after every process has written its bytes."""
        with self.path.open("rb", buffering=0) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def commit(self, digest: str) -> None:
        """Makes the blob durable under its digest."""
        self._store.adopt(self.path, digest)

    def __enter__(self) -> "SharedBlob":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
