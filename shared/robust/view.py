"""A view of a pool of rows: which rows to read, how to mix them, and what is known about them.

Functions that pass over rows (`linalg`) take a `View`. The subclass `Rows` of `View` adds methods
that need a pass over rows.

Legend of shape suffixes: N rows of the pool, K rows of the pool that a view reads, M rows that a
stage sees, L rows after a mix, D coordinates, C coordinates of one chunk.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from rampart_fl.shared.robust import shards
from rampart_fl.shared.robust.pool_statistics import PoolStatistics
from rampart_fl.shared.robust.shards import Part
from rampart_fl.shared.robust.sketch import Traces
from rampart_fl.shared.runtime.device import to_device
from rampart_fl.shared.runtime.disk_block import BlockStorage, MappedFile

CHUNK = 32_768
"""Default number of coordinates in one chunk on the CPU."""
WINDOW = 1 << 28
"""Largest size in bytes of one window, that is, of the columns that a pass reads at a time. If
`shards.GRAIN` columns are larger than this size, a window has `shards.GRAIN` columns."""


@dataclass(frozen=True, eq=False)
class View:
    """A read-only view of a pool of rows, seen through an optional mixing matrix.

    The view is `mix_MK @ block_ND[index_K]`: it selects rows of the pool and then mixes them. If
    `index_K` or `mix_MK` is None, the identity is used instead. Pre-aggregators return a new mixing
    matrix and never a second block; `chunks` applies the matrix.

    Args:
        block_ND: the pool, one update per row; never written to.
        ids: one name per row of the view. The order of the ids determines the order of the
            view's rows. Results do not depend on where the rows are in memory.
        index_K: positions of the rows that the view reads, in reading order, as a CPU tensor; None
            if the view reads all rows of the pool.
        mix_MK: the mixing matrix over the rows that are read, float64 on the CPU.
        weights_M: trusted weights (float64, > 0), 1 for each row by default.
        metadata: for each name, one number per row. Some numbers in the metadata, such as
            "loss_gap", are claims of the clients. All other metadata come from the server. "moved"
            is the norm of the raw upload. "fresh" is 0 if the row was judged in an earlier round.
            "age" is the number of rounds since the server asked for the upload.
        dropped: ids of rows that were left out because they were not finite.
        traces: sketches of the rows, for detectors that remember rows; None if no detector needs
            sketches.
        pool_statistics: measurements of the pool, shared by all views of it.
        file: the file that holds the pool; None if the pool is in memory.
        storage: where stages keep their own blocks, which have one row per client.
        part: the coordinates that this rank holds; None if the pool is not split across ranks.
    """

    block_ND: Tensor
    ids: tuple[str, ...]
    index_K: Tensor | None = None
    mix_MK: Tensor | None = None
    weights_M: Tensor | None = None
    metadata: Mapping[str, Tensor] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    traces: Traces | None = None
    pool_statistics: PoolStatistics = field(default_factory=PoolStatistics, repr=False)
    file: MappedFile | None = field(default=None, repr=False)
    part: Part | None = field(default=None, repr=False)
    storage: BlockStorage = field(default_factory=BlockStorage, repr=False)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def dim(self) -> int:
        """Number of coordinates D that this process holds."""
        return self.block_ND.shape[1]

    @property
    def place(self) -> Part:
        """The part of the coordinates that this process holds."""
        return Part(self.dim, 0, self.dim) if self.part is None else self.part

    @property
    def whole_dim(self) -> int:
        """Total number of coordinates of all ranks."""
        return self.place.dim

    @property
    def device(self) -> torch.device:
        """The device that holds the pool."""
        return self.block_ND.device

    def trusted_weights(self) -> Tensor:
        """Trusted weights (M,) in float64 on the CPU; all 1 if no weights were given."""
        if self.weights_M is None:
            return torch.ones(len(self), dtype=torch.float64)
        return self.weights_M

    def fresh(self) -> list[bool]:
        """Whether each row is a new update; False for rows that were judged in an earlier round.

        >>> from rampart_fl.shared.robust import Rows
        >>> Rows.of(torch.eye(2), metadata={"fresh": [1, 0]}).fresh()
        [True, False]
        """
        fresh_M = self.metadata.get("fresh")
        return [True] * len(self) if fresh_M is None else [bool(new) for new in fresh_M.tolist()]

    def sources(self) -> list[Tensor]:
        """The rows (D,) of the pool that the view reads, in reading order, without a copy."""
        if self.index_K is None:
            return list(self.block_ND.unbind(0))
        return [self.block_ND[i] for i in self.index_K.tolist()]

    def windows(self) -> Iterator[tuple[int, int]]:
        """Yields the ranges of columns that a pass reads, one after the other.

        A sum over all columns takes two steps. First, the windows' sums are added up within each
        shard, in order. Then, the shards' sums are added up. The windows are the same for a pool in
        memory, a pool in a file, and a pool that is split across ranks. Sums therefore have the
        same bits in all three cases. If the pool is in a file, the next window is fetched while a
        pass works on the current window. At most two windows of a file are in memory at once.
        """
        size = max(1, len(self.block_ND)) * self.block_ND.element_size()
        width = max(shards.GRAIN, WINDOW // size // shards.GRAIN * shards.GRAIN)
        ranges = [
            (i, min(i + width, end))
            for begin, end in self.place.own()
            for i in range(begin, end, width)
        ]
        if not ranges and self.part is None:
            ranges = [(0, 0)]
        if self.file is None:
            yield from ranges
            return
        held = self.sources()
        parts = [[row_D[start:stop] for row_D in held] for start, stop in ranges]
        fetching = self.file.fetch(parts[0])
        for place, (start, stop) in enumerate(ranges):
            # Wait until this window has been fetched. Otherwise, the pass could release the window
            # during the fetch. The fetch would then load released pages again, and these pages
            # would stay in memory.
            fetching.result()
            if place + 1 < len(ranges):
                fetching = self.file.fetch(parts[place + 1])
            yield start, stop
            self.file.release(parts[place])

    def width(self, on_cpu: int) -> int:
        """Coordinates per chunk: the argument `on_cpu` on the CPU, a whole window on other devices.

        On the CPU, a chunk is small enough to stay in the caches. On other devices, the host
        launches the kernels of each chunk one by one. For small chunks, the launches take longer
        than the kernels themselves.
        """
        return on_cpu if self.device.type == "cpu" else sys.maxsize

    def chunks(self, size: int | None = None) -> Iterator[tuple[int, int, Tensor]]:
        """Yields ranges of columns, each with a read-only chunk (M, C) of the view's rows."""
        size = self.width(CHUNK) if size is None else size
        mix_MK = self.mix_MK
        if mix_MK is not None:
            mix_MK = to_device(mix_MK, self.device, self.block_ND.dtype)
        index_K = None if self.index_K is None else to_device(self.index_K, self.device)
        for begin, end in self.windows():
            for start in range(begin, end, size):
                stop = min(start + size, end)
                block_KC = self.block_ND[:, start:stop]
                if index_K is not None:
                    block_KC = block_KC.index_select(0, index_K)
                yield start, stop, block_KC if mix_MK is None else mix_MK @ block_KC

    def keep(self, positions: Sequence[int] | Tensor) -> Self:
        """The view restricted to some rows, in the order of `positions`; the pool is not copied."""
        picks = torch.as_tensor(positions, dtype=torch.long).cpu()
        index_K, mix_MK = self.index_K, self.mix_MK
        if mix_MK is not None:
            mix_MK = mix_MK[picks]
        else:
            index_K = picks if index_K is None else index_K[picks]
        return replace(
            self,
            ids=tuple(self.ids[i] for i in picks.tolist()),
            index_K=index_K,
            mix_MK=mix_MK,
            weights_M=None if self.weights_M is None else self.weights_M[picks],
            metadata={key: column[picks] for key, column in self.metadata.items()},
            traces=None if self.traces is None else self.traces.keep(picks),
        )

    def columns(self, which: slice | Tensor) -> Self:
        """The same rows, restricted to some coordinates; makes a copy only if `which` is a tensor.

        If the pool is split across ranks, a slice refers to this rank's coordinates, and an index
        tensor refers to the coordinates of all ranks. Every rank gets the indexed coordinates from
        the ranks that hold them.

        >>> from rampart_fl.shared.robust import Rows
        >>> Rows.of(torch.tensor([[1.0, 2.0, 3.0]])).columns(slice(1, 3)).row(0)
        tensor([2., 3.])
        """
        if isinstance(which, Tensor):
            unread = PoolStatistics(unchecked=self.pool_statistics.unchecked)
            # For randomly drawn coordinates, `gathered` is several times as fast as indexing.
            return replace(
                self,
                block_ND=self.place.gathered(self.block_ND, which, self.file),
                pool_statistics=unread,
                file=None,
                part=None,
            )
        known = self.pool_statistics.of_columns(which)
        return replace(self, block_ND=self.block_ND[:, which], pool_statistics=known, part=None)

    def span(self, which: slice | None) -> Self:
        """The same rows, restricted to a range of coordinates; None means all coordinates.

        If the pool is split across ranks, the range refers to the coordinates of all ranks, and
        every rank gets a copy of the whole range.
        """
        if which is None:
            return replace(
                self, pool_statistics=PoolStatistics(unchecked=self.pool_statistics.unchecked)
            )
        return self.columns(which if self.part is None else torch.arange(self.whole_dim)[which])

    def mixed(
        self, by_LM: Tensor, ids: Sequence[str] | None = None, weights_L: Tensor | None = None
    ) -> Self:
        """L new rows `by_LM @ rows`, without a copy of the pool.

        If L = M, the new rows keep the old rows' ids, weights, metadata and traces. The arguments
        `ids` and `weights_L`, if given, replace the old rows' ids and weights.
        """
        names = self.ids if ids is None else tuple(ids)
        assert len(names) == len(by_LM)
        same = len(by_LM) == len(self)
        mix_LM = by_LM.to(torch.float64).cpu()
        return replace(
            self,
            ids=names,
            mix_MK=mix_LM if self.mix_MK is None else mix_LM @ self.mix_MK,
            weights_M=(self.weights_M if same else None) if weights_L is None else weights_L,
            metadata=self.metadata if same else {},
            traces=self.traces if same else None,
        )
