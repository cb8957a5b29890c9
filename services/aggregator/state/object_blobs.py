"""Blobs in an object store, with a local folder as a cache in front of it."""

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from rampart_fl.services.aggregator.state.blobs import Blobs, Buffer, converted_disk_errors
from rampart_fl.services.aggregator.state.shared_blob import SharedBlob
from rampart_fl.shared.errors import ConfigurationError, Unavailable

PIECE = 1 << 20
"""Size in bytes of the pieces in which a blob is copied from the object store."""


@contextmanager
def converted_store_errors() -> Iterator[None]:
    """Converts an object store's errors to `Unavailable`, except `FileNotFoundError`."""
    try:
        yield
    except FileNotFoundError:
        raise
    except Exception as error:  # Each kind of store has its own error types.
        raise Unavailable(f"object store: {error}") from error


def open_store(url: str) -> Any:
    """Opens an object store.

    Raises:
        ConfigurationError: obstore does not know this kind of URL.
    """
    import obstore

    try:
        return obstore.store.from_url(url)
    except Exception as error:  # Each kind of store has its own error types.
        why = str(error).partition("\n")[0]
        raise ConfigurationError(
            f"RAMPART_BLOBS is {url!r}, which cannot be opened: {why}"
        ) from error


class ObjectBlobs(Blobs):
    """Blobs in S3, GCS, Azure or memory through obstore, with a local folder as cache.

    Args:
        url: URL of the object store.
        cache: the local folder.
        most: maximum size of the cache in bytes; the least recently read blobs are removed first.
        caches: folder with the caches of all runs; `most` limits the total size of this folder. If
            `caches` is None, `most` limits the size of `cache`.
    """

    groups = False

    def __init__(
        self, url: str, cache: Path, most: float = float("inf"), caches: Path | None = None
    ) -> None:
        import obstore

        super().__init__(cache)
        self._remote = open_store(url)
        self._obstore = obstore
        self._most = most
        self._caches = caches
        # The cache may contain files of earlier processes, so the first new blob triggers a check
        # of the cache's size.
        self._grown = most
        self._trimming = threading.Lock()

    def open(self, digest: str) -> BinaryIO:
        if not self.cached(digest):
            self._fetch(digest)
        with contextlib.suppress(FileNotFoundError):
            os.utime(self.path(digest))
        return super().open(digest)

    def _fetch(self, digest: str) -> None:
        """Copies a blob into the cache, piece by piece, and checks its digest."""
        with converted_store_errors():
            response = self._obstore.get(self._remote, digest)
        with self.writer() as writer:
            for piece in _pieces(response):
                writer.write(piece)
            if writer.digest != digest:
                raise Unavailable(f"object store: blob {digest} is damaged")
            self._keep(writer.path, digest)

    def cached(self, digest: str) -> bool:
        """Whether a blob is in the cache; `open` downloads only blobs that are not in the cache."""
        return super().exists(digest)

    def size(self, digest: str) -> int:
        """The size in bytes of a blob in the object store.

        Raises:
            FileNotFoundError: the object store does not have the blob.
        """
        with converted_store_errors():
            size: int = self._obstore.head(self._remote, digest)["size"]
        return size

    def download(self, digest: str, share: range, target: SharedBlob) -> None:
        """Copies a range of a blob's bytes from the object store to the same offsets in a file."""
        if not share:
            return
        byte_range = (share.start, share.stop)
        with converted_store_errors():
            response = self._obstore.get(self._remote, digest, options={"range": byte_range})
        offset = share.start
        for piece in _pieces(response):
            target.write_at(offset, piece)
            offset += len(piece)

    def keep(self, target: SharedBlob, digest: str) -> None:
        """Moves a downloaded file into the cache.

        Raises:
            Unavailable: the file's digest differs from `digest`, so the download is damaged.
        """
        if target.digest() != digest:
            raise Unavailable(f"object store: blob {digest} is damaged")
        with converted_disk_errors():
            self._keep(target.path, digest)

    def put_all(self, blobs: Mapping[str, bytes | bytearray]) -> None:
        for data in blobs.values():
            self.put(data)

    def growth(self, blobs: int, blob_bytes: int) -> int:
        new = super().growth(blobs, blob_bytes)
        if self._most == float("inf"):
            return new
        held = sum(size for _, size, _ in self._held())
        # The cache stores a new blob before it deletes old blobs, so it can exceed its limit by one
        # blob.
        return int(min(new, max(0, self._most - held) + blob_bytes))

    def exists(self, digest: str) -> bool:
        if self.cached(digest):
            return True
        try:
            with converted_store_errors():
                self._obstore.head(self._remote, digest)
        except FileNotFoundError:
            return False
        return True

    def _delete(self, digest: str) -> None:
        super()._delete(digest)
        with contextlib.suppress(FileNotFoundError), converted_store_errors():
            self._obstore.delete(self._remote, digest)

    def stored_at(self, digest: str) -> float:
        try:
            with converted_store_errors():
                head = self._obstore.head(self._remote, digest)
        except FileNotFoundError:
            return float("-inf")
        return float(head["last_modified"].timestamp())

    def sweep(self, referenced: set[str], before: float) -> int:
        removed = super().sweep(referenced, before)
        with converted_store_errors():
            items = [item for page in self._obstore.list(self._remote) for item in page]
        for item in items:
            old = item["last_modified"].timestamp() < before
            if old and item["path"] not in referenced:
                self.delete([item["path"]])
                removed += 1
        return removed

    def stored(self) -> list[str]:
        """The digests of the blobs directly under the object store's prefix."""
        with converted_store_errors():
            items = [item for page in self._obstore.list(self._remote) for item in page]
        return [item["path"] for item in items if "/" not in item["path"]]

    def clear(self) -> None:
        with converted_store_errors():
            for page in self._obstore.list(self._remote):
                for item in page:
                    self._obstore.delete(self._remote, item["path"])
        self.clear_cache()

    def clear_cache(self) -> None:
        """Deletes all blobs from the cache, but no blob from the object store."""
        super().clear()

    @converted_disk_errors()
    def adopt(self, path: Path, digest: str) -> None:
        with converted_store_errors():
            self._obstore.put(self._remote, digest, path)
        self._keep(path, digest)

    def _keep(self, path: Path, digest: str) -> None:
        """Moves a file into the cache.

        If the files that were added since the last check take more than a tenth of the cache's
        limit, the method checks the size of the cache. It then deletes the least recently read
        blobs until the cache takes at most nine tenths of its limit.
        """
        size = path.stat().st_size
        super().adopt(path, digest)
        with self._trimming:
            self._grown += size
            if self._grown <= self._most / 10:
                return
            self._grown = 0
            held = sorted(self._held())
            total = sum(size for _, size, _ in held)
            for _, size, path in held:
                if total <= 0.9 * self._most or path.name == digest:
                    break
                path.unlink(missing_ok=True)
                total -= size

    def _held(self) -> Iterator[tuple[float, int, Path]]:
        own = map(self.path, self.digests())
        for path in own if self._caches is None else self._caches.glob("*/??/*"):
            with contextlib.suppress(FileNotFoundError):
                stat = path.stat()
                yield stat.st_mtime, stat.st_size, path


def _pieces(response: Any) -> Iterator[Buffer]:
    """Yields the bytes of an object as they arrive; converts store errors to `Unavailable`."""
    with converted_store_errors():
        yield from response.stream(PIECE)
