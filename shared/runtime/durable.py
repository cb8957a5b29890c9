"""Replaces files atomically and durably: when a call returns, the new file is on the disk."""

import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def replace(path: Path, pieces: Iterable[bytes], mode: int = 0o666) -> None:
    """Replaces a file's content with these bytes, atomically and durably.

    Args:
        path: the file's path.
        pieces: the new content.
        mode: the file's permissions, before the umask.
    Raises:
        OSError: writing failed, and the old file is unchanged. The error always names a file;
            Python's own error for a full disk does not.
    """
    with replacing(path) as part:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(pieces)


@contextmanager
def replacing(path: Path, several: bool = False) -> Iterator[Path]:
    """Yields a temporary path for a file's next version, then moves this version into place.

    Args:
        path: the file's path.
        several: whether several processes may write the file at the same time.
    Raises:
        OSError: as in `replace`.
    """
    own = f".{uuid.uuid4().hex}" if several else ""
    part = path.with_name(f"{path.stem}{own}.part{path.suffix}")
    try:
        part.unlink(missing_ok=True)  # A file left by a crash may have other permissions.
        yield part
        place(part, path)
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(part)
        raise
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def place(part: Path, path: Path) -> None:
    """Syncs a written file to disk, moves it to its path, and syncs the folder."""
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Syncs a folder to disk, so that changes to its entries are durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
