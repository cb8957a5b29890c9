"""Files that are replaced at once and are on the disk before anybody hears of it."""

import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def replace(path: Path, pieces: Iterable[bytes], mode: int = 0o666) -> None:
    """Replaces a file by these bytes, durably.

    Args:
        path: its place.
        pieces: what it has.
        mode: who may read it, before the umask.
    Raises:
        OSError: names the file, which a disk that is full does not; what was there is there still.
    """
    with replacing(path) as part:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(pieces)


@contextmanager
def replacing(path: Path, several: bool = False) -> Iterator[Path]:
    """Gives the path that a file's next version is written to; puts it in place at the end.

    Args:
        path: the file's place.
        several: whether several processes may write it at the same time.
    Raises:
        OSError: as `replace`.
    """
    own = f".{uuid.uuid4().hex}" if several else ""
    part = path.with_name(f"{path.stem}{own}.part{path.suffix}")
    try:
        part.unlink(missing_ok=True)  # What a crash left has its own mode.
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
    """Moves a written file to its place: its bytes first, then its name are on the disk."""
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
