"""Files that are replaced at once and are on the disk before anybody hears of it."""

import os
from collections.abc import Iterable
from pathlib import Path


def replace(path: Path, pieces: Iterable[bytes], mode: int = 0o666) -> None:
    """Writes a file beside its place, fsyncs it, and puts it there.

    Args:
        path: its place.
        pieces: what it has.
        mode: who may read it, before the umask.
    Raises:
        OSError: names the file, which a disk that is full does not; what was there is there still.
    """
    part = path.with_suffix(".part")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
    except OSError as error:
        if error.filename is None:
            error.filename = str(part)
        raise
