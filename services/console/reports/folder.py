"""Writes a folder with digests of its files; after an error, no incomplete folder is left."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.runtime import durable

SUMS = "SHA256SUMS"
"""The file with the digests, in the format of `sha256sum --check`."""


class NewFolder:
    """Writes the files of a folder, and collects their digests.

    Args:
        path: the folder, which exists and is empty.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.digests: dict[str, str] = {}
        """SHA-256 of each file, keyed by its path in the folder."""

    def write(self, pieces: Iterable[bytes], *names: str) -> str:
        """Writes a file; returns its digest.

        Args:
            pieces: the content.
            names: the names of the subfolders, and then the name of the file. `safe` escapes each
                name, so that the file is always inside the folder.
        """
        place = [safe(name) for name in names]
        path, whole = self.path.joinpath(*place), hashlib.sha256()

        def hashed() -> Iterator[bytes]:
            for piece in pieces:
                whole.update(piece)
                yield piece

        path.parent.mkdir(parents=True, exist_ok=True)
        durable.create(path, hashed())
        self.digests["/".join(place)] = whole.hexdigest()
        return whole.hexdigest()

    def text(self, content: str, *names: str) -> None:
        """Writes a text file."""
        self.write([content.encode()], *names)

    def json(self, value: Any, *names: str) -> None:
        """Writes a value as a JSON file."""
        self.text(json.dumps(value, indent=1) + "\n", *names)

    def lines(self, lines: Iterable[str], *names: str) -> None:
        """Writes lines of text one by one, without holding all of them in memory."""
        self.write((line.encode() + b"\n" for line in lines), *names)

    def finish(self) -> None:
        """Writes the digests of all files."""
        rows = [f"{digest}  {name}\n" for name, digest in sorted(self.digests.items())]
        durable.create(self.path / SUMS, (row.encode() for row in rows))


def safe(name: str) -> str:
    """Converts a name to a file name; escapes a leading dot and special characters such as "/".

    >>> safe("client-07"), safe("cluster:1"), safe("../out"), safe("..")
    ('client-07', 'cluster%3A1', '%2E.%2Fout', '%2E.')
    """
    escaped = quote(name, safe="")
    return f"%2E{escaped[1:]}" if escaped.startswith(".") else escaped


@contextmanager
def new_folder(path: Path) -> Iterator[NewFolder]:
    """Context manager that makes the folder `path`; after an error, the folder does not appear.

    Raises:
        ConfigurationError: the path is a file, or a folder that is not empty.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ConfigurationError(f"{path} exists and is not an empty folder")
    with durable.new_folder(path) as part:
        folder = NewFolder(part)
        yield folder
        folder.finish()
