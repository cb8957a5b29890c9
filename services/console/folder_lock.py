"""Locks a folder for results, so that only one process at a time writes to the folder."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TextIO

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.runtime import durable

NAME = ".lock"
"""Name of the lock file. When the lock ends, the file is deleted; after a crash, it remains."""
NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
"""Error numbers that `flock` gives on a file system without locks."""


def try_lock(file: TextIO) -> bool:
    """Locks a file until it is closed; returns False if another process has locked the file."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def sign(file: TextIO) -> None:
    """Replaces the content of a locked file with the id of the current process."""
    file.seek(0)
    file.truncate()
    file.write(f"{os.getpid()}\n")
    file.flush()


@contextmanager
def locked(folder: Path | None) -> Iterator[None]:
    """Locks a folder for results until the context ends; creates the folder if it is missing.

    The threads of this process, and the processes that it starts, can still write to the folder.
    The kernel removes the lock of a process that dies. When the context ends, a folder that this
    function created is removed if it is empty. If `folder` is None, nothing is locked.

    Raises:
        ConfigurationError: another process has locked the folder, or the folder is not writable.
    """
    if folder is None:
        yield
        return
    new = not folder.exists()
    durable.make_folder(folder)
    with _lock_file(folder):
        try:
            yield
        finally:
            (folder / NAME).unlink(missing_ok=True)
            if new:
                with suppress(OSError):  # The folder is not empty.
                    folder.rmdir()


def _lock_file(folder: Path) -> TextIO:
    """Opens and locks the folder's lock file; the lock ends when the file is closed."""
    path = folder / NAME
    while True:
        with ExitStack() as opened:
            file = opened.enter_context(_opened(path))
            if not _try_lock_if_possible(file):
                file.seek(0)
                raise ConfigurationError(
                    f"process {file.read().strip()} writes to the folder {folder}: wait until it "
                    "ends, or choose another folder"
                )
            # The previous owner may have removed the file before this process locked it.
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                    sign(file)
                    opened.pop_all()
                    return file


def _opened(path: Path) -> TextIO:
    try:
        return path.open("a+", encoding="utf-8")
    except OSError as error:
        why = f"cannot write to the folder {path.parent}: {error.strerror}"
        raise ConfigurationError(why) from None


def _try_lock_if_possible(file: TextIO) -> bool:
    """Like `try_lock`, but returns True if the file system has no locks."""
    try:
        return try_lock(file)
    except OSError as error:
        if error.errno in NO_LOCKS:
            return True
        raise
