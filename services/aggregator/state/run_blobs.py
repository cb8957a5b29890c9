"""Opens the blobs of each run, in a local folder or an object store."""

import contextlib
import os
import re
import shutil
import tempfile
import threading
from collections import OrderedDict
from pathlib import Path

from rampart_fl.services.aggregator.state.blobs import Blobs, converted_disk_errors
from rampart_fl.services.aggregator.state.object_blobs import (
    ObjectBlobs,
    converted_store_errors,
    open_store,
)

ROOM = bytes(1 << 16)
"""The bytes that `check` writes to find out whether the disk has free blocks.

A file system can store a very small file inside the file's inode. Writing such a file would succeed
even on a full disk."""
OPEN = 16
"""Maximum number of runs for which a process keeps a `Blobs` object. The process drops the object
of the least recently used run first."""


class RunBlobs:
    """The blobs of a federation: each run has its own folder or object store prefix.

    No run can read, replace or delete another run's blobs, even if two runs store equal bytes.

    Args:
        location: a folder's path, or an object store's URL (s3://, gs://, az://, memory://).
        cache: local folder that caches the blobs of an object store.
        most: maximum size of the cache in bytes.
    """

    def __init__(self, location: str, cache: Path, most: float = float("inf")) -> None:
        self._location = location.rstrip("/")
        self._remote = "://" in location
        # Open the store now, so that a wrong URL is reported when the process starts.
        self._store = open_store(location) if self._remote else None
        self._most = most
        self.folder = cache if self._remote else Path(location)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._opened: OrderedDict[str, Blobs] = OrderedDict()
        self._opening = threading.Lock()

    def of_run(self, run: str) -> Blobs:
        """The blobs of a run."""
        with self._opening:
            blobs = self._opened.get(run)
            if blobs is None:
                blobs = self._opened[run] = self._open(run)
            self._opened.move_to_end(run)
            if len(self._opened) > OPEN:
                self._opened.popitem(last=False)
            return blobs

    def _open(self, run: str) -> Blobs:
        if not self._remote:
            return Blobs(self.folder / run)
        url = f"{self._location}/{run}"
        return ObjectBlobs(url, self.folder / run, self._most, self.folder)

    def remove(self, run: str) -> None:
        """Deletes all blobs of a run."""
        self.of_run(run).clear()
        with self._opening:
            self._opened.pop(run, None)

    def size(self) -> int:
        """Total size of all runs' blobs in bytes; for a local folder, includes unfinished files."""
        if self._store is not None:
            import obstore

            with converted_store_errors():
                return sum(item["size"] for page in obstore.list(self._store) for item in page)
        total = 0
        for folder, _, names in os.walk(self.folder):
            for name in names:
                with (
                    contextlib.suppress(FileNotFoundError),
                    converted_disk_errors(FileNotFoundError),
                ):
                    total += Path(folder, name).lstat().st_size
        return total

    def check(self) -> None:
        """Raises `Unavailable` if the folder has no space, or the object store does not respond."""
        with converted_disk_errors(), tempfile.TemporaryFile(dir=self.folder) as file:
            file.write(ROOM)
            file.flush()
        if self._store is not None:
            import obstore

            with contextlib.suppress(FileNotFoundError), converted_store_errors():
                obstore.head(self._store, "0" * 64)

    def former(self) -> Blobs:
        """The blobs of an old version of Rampart, which kept all blobs in one folder or prefix."""
        if self._remote:
            return ObjectBlobs(self._location, self.folder / "former")
        return Blobs(self.folder)

    def adopt_former(self, run: str) -> None:
        """Moves blobs of an old version of Rampart to the given run; the old version had no runs.

        If the process dies meanwhile, the next call moves the remaining blobs.
        """
        target, former = self.of_run(run), self.former()
        if isinstance(former, ObjectBlobs):
            for digest in former.stored():
                with former.open(digest) as file, target.writer() as writer:
                    shutil.copyfileobj(file, writer)
                    writer.commit()
                former.delete([digest])
            former.clear_cache()
            return
        with converted_disk_errors():
            for digest in list(former.digests()):
                target.adopt(former.path(digest), digest)
            for folder in list(self.folder.iterdir()):
                if re.fullmatch(r"[0-9a-f]{2}|tmp", folder.name):
                    shutil.rmtree(folder)
