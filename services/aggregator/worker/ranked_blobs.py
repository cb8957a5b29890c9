"""Opens blobs on all ranks, and downloads each blob of an object store only once."""

from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.aggregator.state.object_blobs import PIECE, ObjectBlobs
from rampart_fl.services.aggregator.state.shared_blob import SharedBlob
from rampart_fl.services.aggregator.worker.ranks import Ranks
from rampart_fl.shared.rounding import ceil_div


def share(size: int, rank: int, ranks: int) -> range:
    """The range of a blob's bytes that a rank downloads.

    Each range consists of whole pieces (`PIECE`); the ranges are as equal as possible.

    >>> share(5 * PIECE // 2, 0, 2) == range(PIECE), share(5 * PIECE // 2, 1, 2).stop
    (True, 2621440)
    """
    pieces = ceil_div(size, PIECE)
    first, last = (min(size, PIECE * (pieces * at // ranks)) for at in (rank, rank + 1))
    return range(first, last)


class RankedBlobs:
    """The blobs that all ranks of a worker open together.

    All ranks use the same local cache of the object store. Each rank downloads its share of a
    blob's bytes. All shares go into the same file in the cache, and rank 0 checks the digest of the
    whole file.

    Args:
        blobs: the run's blobs.
        ranks: the processes of the worker.
    """

    def __init__(self, blobs: Blobs, ranks: Ranks) -> None:
        self._blobs = blobs
        self._ranks = ranks

    def open(self, digest: str) -> BinaryIO:
        """Opens a blob; every rank must open the same blobs in the same order.

        Raises:
            FileNotFoundError: the blob does not exist.
        """
        if isinstance(self._blobs, ObjectBlobs) and self._ranks.size > 1:
            self._download(self._blobs, digest)
        return self._blobs.open(digest)

    def _download(self, blobs: ObjectBlobs, digest: str) -> None:
        """Downloads a blob into the cache, unless the blob is already in the cache."""
        ranks = self._ranks
        with ExitStack() as stack:
            begun: tuple[Path, int] | None = None
            if not ranks.rank and not blobs.cached(digest):
                size = blobs.size(digest)
                begun = stack.enter_context(SharedBlob.created(blobs, size)), size
            # Only rank 0 checks the cache. If every rank checked it, the cache could change between
            # two checks, and the ranks could get different answers.
            begun = ranks.broadcast(begun)
            if begun is None:
                return
            path, size = begun
            file = stack.enter_context(SharedBlob(blobs, path))
            blobs.download(digest, share(size, ranks.rank, ranks.size), file)
            ranks.wait()
            if not ranks.rank:
                blobs.keep(file, digest)
            ranks.wait()
