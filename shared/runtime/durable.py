"""Writes files and folders durably: when a call returns, the new content is on the disk.

Rampart writes whole files with results through this module, so a crash never leaves half a file
under its final name. The modules that append lines to a file sync this file themselves. These
modules write the records of a simulation (`simulated.py`) and an agent's activity log. A crash may
truncate the last line of such a file.
"""

import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rampart_fl.shared.errors import ConfigurationError


def replace(path: Path, pieces: Iterable[bytes], mode: int = 0o666) -> None:
    """Replaces a file's content with these bytes, atomically and durably.

    Args:
        path: the file's path.
        pieces: the new content.
        mode: the file's permissions before the umask is applied.
    Raises:
        OSError: writing failed, and the old file is unchanged. The error always names a file;
            Python's own error for a full disk does not name a file.
    """
    with replacing(path) as part:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(pieces)


def replace_text(path: Path, text: str) -> None:
    """Replaces a file's content with a text in UTF-8, atomically and durably.

    Raises:
        OSError: as in `replace`.
    """
    replace(path, [text.encode()])


def create(path: Path, pieces: Iterable[bytes]) -> None:
    """Writes a new file, and syncs only the file to disk; `new_folder` also syncs the folder.

    Raises:
        FileExistsError: the file exists.
    """
    with path.open("xb") as file:
        file.writelines(pieces)
        file.flush()
        os.fsync(file.fileno())


def make_folder(path: Path) -> None:
    """Makes a folder for results, unless it exists.

    Raises:
        ConfigurationError: the folder cannot be made; the message says why.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = "it is a file" if isinstance(error, FileExistsError) else error.strerror
        raise ConfigurationError(f"cannot write to the folder {path}: {why}") from None


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yields a temporary folder, which moves to `path` if the context ends without an error.

    Before the context ends, the caller must sync the files in the folder to disk, for example with
    `create`.

    Args:
        path: the new folder. If this folder exists already, it must be empty.
    Raises:
        ConfigurationError: the folder cannot be made; the message says why.
    """
    part = path.with_name(f".{path.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        part.mkdir(parents=True)
    except OSError as error:  # The message names `path`, because users do not know `part`.
        raise ConfigurationError(f"cannot make the folder {path}: {error.strerror}") from None
    try:
        yield part
        for folder in (part, *(inner for inner in part.rglob("*") if inner.is_dir())):
            sync_folder(folder)
        part.replace(path)
        sync_folder(path.absolute().parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)


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
        part.unlink(missing_ok=True)  # A file left by a crash may have wrong permissions.
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
