"""Collections of models; a model is computed only when it is read, chunk by chunk.

Legend: D coordinates, M rows of the pool, L models, C coordinates of a chunk.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rampart_fl.shared.robust.base import CHUNK, Rows
from rampart_fl.shared.runtime.device import to_device

Chunk = tuple[int, int, Tensor]
"""A range of columns, and their values."""


def aligned_chunks(*streams: Iterable[Chunk]) -> Iterator[tuple[int, int, list[Tensor]]]:
    """Yields the same columns of several streams together, even if the streams' chunks differ.

    >>> wide, narrow = [(0, 4, torch.arange(4))], [(0, 3, torch.arange(3)), (3, 4, torch.ones(1))]
    >>> [(start, stop) for start, stop, _ in aligned_chunks(wide, narrow)]
    [(0, 3), (3, 4)]
    """
    rest = [iter(stream) for stream in streams]
    held: list[Chunk | None] = [next(stream, None) for stream in rest]
    while None not in held:
        chunks = [chunk for chunk in held if chunk is not None]
        start, stop = chunks[0][0], min(stop for _, stop, _ in chunks)
        yield start, stop, [chunk[..., : stop - start] for _, _, chunk in chunks]
        held = [
            (stop, end, chunk[..., stop - start :]) if end > stop else next(stream, None)
            for (_, end, chunk), stream in zip(chunks, rest, strict=True)
        ]


class Models(ABC):
    """Models by name; a model is computed or copied only when it is read."""

    names: tuple[str, ...]

    @property
    @abstractmethod
    def like(self) -> Tensor:
        """A tensor that has the device, the dtype and the last dimension (D) of the models."""

    @abstractmethod
    def chunks(self) -> Iterator[tuple[int, int, Tensor]]:
        """Yields ranges of columns, each with a read-only chunk (L, C) of all models."""

    @abstractmethod
    def pick(self, names: Sequence[str]) -> "Models":
        """The models with these names, in this order."""

    def model(self, name: str) -> Tensor:
        """A copy (D,) of one model."""
        return self.block([name])[0]

    def block(self, names: Sequence[str]) -> Tensor:
        """A new block (L, D) of the models with these names."""
        block_LD = self.like.new_empty(len(names), self.like.shape[-1])
        for start, stop, chunk_LC in self.pick(names).chunks():
            block_LD[:, start:stop] = chunk_LC
        return block_LD

    def _places(self, names: Sequence[str]) -> list[int]:
        return [self.names.index(name) for name in names]


@dataclass(frozen=True, eq=False)
class Mixture(Models):
    """L models that mix rows: `reference_D + mix_LM @ rows`."""

    names: tuple[str, ...]
    reference_D: Tensor
    rows: Rows
    mix_LM: Tensor

    @property
    def like(self) -> Tensor:
        return self.rows.block_ND

    def chunks(self) -> Iterator[tuple[int, int, Tensor]]:
        mix_LM = to_device(self.mix_LM, self.rows.device, self.rows.block_ND.dtype)
        for start, stop, chunk_MC in self.rows.chunks():
            yield start, stop, mix_LM @ chunk_MC + self.reference_D[start:stop]

    def pick(self, names: Sequence[str]) -> "Mixture":
        at = torch.tensor(self._places(names), dtype=torch.long)
        return replace(self, names=tuple(names), mix_LM=self.mix_LM[at])


@dataclass(frozen=True, eq=False)
class ClientModels(Models):
    """The clients' own models `reference_D + row`, named by client id."""

    names: tuple[str, ...]
    reference_D: Tensor
    rows: Rows

    @property
    def like(self) -> Tensor:
        return self.rows.block_ND

    def chunks(self) -> Iterator[tuple[int, int, Tensor]]:
        for start, stop, chunk_LC in self.rows.chunks():
            yield start, stop, chunk_LC + self.reference_D[start:stop]

    def pick(self, names: Sequence[str]) -> "ClientModels":
        return replace(self, names=tuple(names), rows=self.rows.keep(self._places(names)))


@dataclass(frozen=True, eq=False)
class ModelBlock(Models):
    """Models that are already in memory, as the rows of one tensor."""

    names: tuple[str, ...]
    models_LD: Tensor

    @property
    def like(self) -> Tensor:
        return self.models_LD

    def chunks(self) -> Iterator[tuple[int, int, Tensor]]:
        dim = self.models_LD.shape[1]
        for start in range(0, dim, CHUNK):
            stop = min(start + CHUNK, dim)
            yield start, stop, self.models_LD[:, start:stop]

    def pick(self, names: Sequence[str]) -> "ModelBlock":
        at = to_device(self._places(names), self.models_LD.device, torch.long)
        return replace(self, names=tuple(names), models_LD=self.models_LD.index_select(0, at))
