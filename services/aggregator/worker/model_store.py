"""Stores the models of a round as blobs.

Legend: D coordinates, L models, C coordinates of a chunk.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from torch import Tensor

from rampart_fl.services.aggregator.state.blobs import Blobs, BlobWriter
from rampart_fl.services.aggregator.worker.ranks import Ranks
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.robust.models import Models


class ModelStore:
    """Writes the models of one run; if coordinates are split across ranks, rank 0 writes them.

    Args:
        blobs: the run's blobs.
        spec: the tensors of a model.
        ranks: the processes that hold the coordinates.
    """

    def __init__(self, blobs: Blobs, spec: ModelSpec, ranks: Ranks) -> None:
        self._blobs = blobs
        self._spec = spec
        self._ranks = ranks
        self._disk = ThreadPoolExecutor(8, thread_name_prefix="models")

    def put(self, model_D: Tensor) -> str:
        """Stores one model; returns its digest."""
        return self._write(1, [model_D.unsqueeze(0)])[0]

    def put_all(self, models: Models | None) -> dict[str, str]:
        """Stores several models in one pass over the pool; returns digests by name."""
        if models is None:
            return {}
        chunks = (chunk_LC for _, _, chunk_LC in models.chunks())
        return dict(zip(models.names, self._write(len(models.names), chunks), strict=True))

    def close(self) -> None:
        """Ends the threads."""
        self._disk.shutdown(wait=False)

    def _write(self, count: int, chunks: Iterable[Tensor]) -> list[str]:
        """Writes several models concurrently; every rank gets their digests."""
        own = 0 if self._ranks.rank else count
        with ExitStack() as stack:
            writers = [stack.enter_context(self._blobs.writer()) for _ in range(own)]
            for writer in writers:
                writer.write(wire.header(self._spec))
            for chunk_LC in self._ranks.in_order(chunks):
                for writer, models_C in zip(writers, chunk_LC.numpy(), strict=True):
                    writer.write(models_C.data)
            return self._ranks.broadcast(list(self._disk.map(BlobWriter.commit, writers)))
