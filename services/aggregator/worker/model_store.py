"""Stores the models of a round as blobs.

Legend: D coordinates, L models, C coordinates of a chunk.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from torch import Tensor

from rampart_fl.services.aggregator.state.blobs import Blobs, BlobWriter
from rampart_fl.services.aggregator.state.shared_blob import SharedBlob
from rampart_fl.services.aggregator.worker.ranks import Ranks
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.robust.models import Chunk, Models
from rampart_fl.shared.robust.shards import Part


class ModelStore:
    """Writes the models of one run; each rank writes the coordinates that it has.

    Args:
        blobs: the run's blobs.
        spec: the tensors of a model.
        ranks: the processes among which the coordinates are divided.
    """

    def __init__(self, blobs: Blobs, spec: ModelSpec, ranks: Ranks) -> None:
        self._blobs = blobs
        self._header = wire.header(spec)
        self._size = len(self._header) + 4 * spec.dim
        self._ranks = ranks
        self._part = ranks.part(spec.dim)
        self._disk = ThreadPoolExecutor(8, thread_name_prefix="models")

    def put(self, model_D: Tensor) -> str:
        """Stores one model; returns its digest."""
        return self._write(1, [(0, len(model_D), model_D.unsqueeze(0))])[0]

    def put_all(self, models: Models | None) -> dict[str, str]:
        """Stores several models in one pass over their chunks; returns the digests by name."""
        if models is None:
            return {}
        digests = self._write(len(models.names), models.chunks())
        return dict(zip(models.names, digests, strict=True))

    def close(self) -> None:
        """Ends the threads."""
        self._disk.shutdown(wait=False)

    def _write(self, count: int, chunks: Iterable[Chunk]) -> list[str]:
        """Writes several models; every rank gets the digests of all these models."""
        if self._part is None:
            return self._write_alone(count, chunks)
        return self._write_together(self._part, count, chunks)

    def _write_alone(self, count: int, chunks: Iterable[Chunk]) -> list[str]:
        """Writes and hashes the models in one pass."""
        with ExitStack() as stack:
            writers = [stack.enter_context(self._blobs.writer()) for _ in range(count)]
            for writer in writers:
                writer.write(self._header)
            for _, _, chunk_LC in chunks:
                for writer, model_C in zip(writers, _rows(chunk_LC), strict=True):
                    writer.write(model_C)
            return list(self._disk.map(BlobWriter.commit, writers))

    def _write_together(self, part: Part, count: int, chunks: Iterable[Chunk]) -> list[str]:
        """Writes this rank's coordinates of every model; then hashes this rank's models.

        Every rank hashes a different part of the models.
        """
        ranks, blobs = self._ranks, self._blobs
        with ExitStack() as stack:
            own = 0 if ranks.rank else count
            created = [SharedBlob.created(blobs, self._size) for _ in range(own)]
            paths = ranks.broadcast([stack.enter_context(each) for each in created])
            files = [stack.enter_context(SharedBlob(blobs, path)) for path in paths]
            if not ranks.rank:
                for file in files:
                    file.write_at(0, self._header)
            for start, _, chunk_LC in chunks:
                offset = len(self._header) + 4 * (part.start + start)
                for file, model_C in zip(files, _rows(chunk_LC), strict=True):
                    file.write_at(offset, model_C)
            ranks.wait()
            committed = []
            for file in files[ranks.rank :: ranks.size]:
                digest = file.digest()
                # Another thread writes this model to the disk while the next model is hashed.
                committed.append((digest, self._disk.submit(file.commit, digest)))
            for _, done in committed:
                done.result()
            digests = ranks.gather([digest for digest, _ in committed])
        return [digests[number % ranks.size][number // ranks.size] for number in range(count)]


def _rows(chunk_LC: Tensor) -> list[memoryview]:
    """For each model, the bytes of the model's coordinates in this chunk."""
    return [model_C.data for model_C in chunk_LC.detach().cpu().contiguous().numpy()]
