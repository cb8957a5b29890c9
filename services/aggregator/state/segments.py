"""Segments: files that each hold many small blobs, so that one fsync makes all of them durable.

A segment consists of the length of its index (u64, little-endian), the index, and the blobs' bytes.
The index is a JSON list of [digest, size], in the order of the blobs. A segment never changes.
Deleting a segment's last blob also deletes the segment.
"""

import json
import os
import secrets
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import NamedTuple

from rampart_fl.shared.runtime import durable

LENGTH = struct.Struct("<Q")


class Place(NamedTuple):
    """The location of a blob: segment, offset and length in bytes."""

    segment: str
    start: int
    size: int


class Segments:
    """The segments in one folder; several processes can use the folder at the same time.

    Args:
        folder: folder of the segments; created with the first segment.
        unfinished: folder for unfinished files, on the same file system as `folder`.
        remove: a function that deletes a file.
    """

    def __init__(self, folder: Path, unfinished: Path, remove: Callable[[Path], object]) -> None:
        self._folder = folder
        self._unfinished = unfinished
        self._remove = remove
        self._lock = threading.Lock()
        self._places: dict[str, dict[str, Place]] = {}
        """The locations of each blob, keyed by the blob's digest and then by the segment's name."""
        self._live: dict[str, set[str]] = {}
        """For each known segment, the digests of the blobs that this process has not deleted."""

    def add(self, blobs: Mapping[str, bytes | bytearray]) -> None:
        """Makes blobs durable, as one segment.

        Args:
            blobs: the bytes, keyed by their digest.
        """
        if not self._folder.exists():
            self._folder.mkdir(exist_ok=True)
            durable.sync_folder(self._folder.parent)
        index = json.dumps([[digest, len(data)] for digest, data in blobs.items()]).encode()
        name = secrets.token_hex(16)
        part = self._unfinished / name
        try:
            with part.open("xb") as file:
                file.writelines((LENGTH.pack(len(index)), index, *blobs.values()))
            durable.place(part, self._folder / name)
        finally:
            part.unlink(missing_ok=True)

    def read(self, digest: str) -> bytes | None:
        """A blob's bytes; None if no segment contains the blob."""
        while (place := self._find(digest)) is not None:
            try:
                with (self._folder / place.segment).open("rb") as file:
                    return os.pread(file.fileno(), place.size, place.start)
            except FileNotFoundError:
                self._scan()  # Another process has deleted the segment.
        return None

    def read_known(self, digest: str) -> bytes | None:
        """A blob's bytes; None if this process does not know the blob's segment yet."""
        return self.read(digest) if digest in self._places else None

    def holds(self, digest: str) -> bool:
        """Whether a segment contains the blob."""
        place = self._find(digest)
        if place is not None and not (self._folder / place.segment).exists():
            self._scan()  # Another process has deleted the segment.
            place = self._find(digest)
        return place is not None

    def stored_at(self, digest: str) -> float:
        """The Unix time at which the blob's newest segment was stored; -inf if there is none."""
        self._find(digest)
        with self._lock:
            names = [*self._places.get(digest, ())]
        newest = -inf
        for name in names:
            with suppress(FileNotFoundError):  # Another process has deleted the segment.
                newest = max(newest, (self._folder / name).stat().st_ctime)
        return newest

    def delete(self, digests: Iterable[str]) -> None:
        """Deletes blobs; their bytes remain on disk as long as the segment has other blobs."""
        for digest in digests:
            self._find(digest)
            with self._lock:
                holders = self._places.pop(digest, {})
                for name in holders:
                    self._live[name].discard(digest)
                empty = [name for name in holders if not self._live[name]]
            for name in empty:
                self._drop(name)

    def digests(self) -> set[str]:
        """The digests of all blobs."""
        self._scan()
        return set(self._places)

    def sweep(self, referenced: set[str], oldest: float) -> int:
        """Deletes segments that are no longer needed and were written before Unix time `oldest`.

        A segment is needed if it has at least one referenced blob that no newer segment contains.
        For example, if clients upload the same bytes in every round, only the newest segment with
        these bytes is needed.

        Returns:
            The number of deleted segments.
        """
        removed, covered = 0, set[str]()
        for written, name in sorted(self._modification_times(), reverse=True):
            needed = (self._digests_in(name) & referenced) - covered
            covered |= needed
            if not needed and written < oldest:
                self._drop(name)
                removed += 1
        return removed

    def _find(self, digest: str) -> Place | None:
        if digest not in self._places:
            self._scan()
        with self._lock:
            return next(iter(self._places.get(digest, {}).values()), None)

    def _scan(self) -> None:
        """Reads the indices of new segments, and drops segments that no longer exist."""
        with self._lock:
            names = self._names()
            for name in self._live.keys() - names:
                self._forget(name)
            for name in names - self._live.keys():
                try:
                    self._learn(name)
                except FileNotFoundError:
                    continue

    def _names(self) -> set[str]:
        """The names of all segments."""
        try:
            return {path.name for path in self._folder.iterdir()}
        except FileNotFoundError:
            return set()

    def _index(self, name: str) -> tuple[list[tuple[str, int]], int]:
        """The digest and size of each blob in a segment, and the offset of the first blob."""
        with (self._folder / name).open("rb") as file:
            (length,) = LENGTH.unpack(file.read(LENGTH.size))
            return json.loads(file.read(length)), LENGTH.size + length

    def _digests_in(self, name: str) -> set[str]:
        """The digests in a segment.

        If this process does not know the segment yet, the method reads the segment's index, but
        does not cache the index.
        """
        if (live := self._live.get(name)) is not None:
            return set(live)
        try:
            return {digest for digest, _ in self._index(name)[0]}
        except FileNotFoundError:
            return set()

    def _learn(self, name: str) -> None:
        index, start = self._index(name)
        self._live[name] = {digest for digest, _ in index}
        for digest, size in index:
            self._places.setdefault(digest, {})[name] = Place(name, start, size)
            start += size

    def _forget(self, name: str) -> None:
        for digest in self._live.pop(name):
            del self._places[digest][name]
            if not self._places[digest]:
                del self._places[digest]

    def _drop(self, name: str) -> None:
        with self._lock:
            if name in self._live:
                self._forget(name)
        self._remove(self._folder / name)

    def _modification_times(self) -> Iterator[tuple[float, str]]:
        """The modification time and the name of each segment."""
        for name in self._names():
            with suppress(FileNotFoundError):  # Another process has deleted the segment.
                yield (self._folder / name).stat().st_mtime, name
