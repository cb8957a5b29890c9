"""How a pass reads rows: as whole rows of the pool, or as chunks if the rows are mixed.

Legend: M rows of the view, K rows of the pool that the view reads, D coordinates, C coordinates of
a chunk.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from torch import Tensor

from rampart_fl.shared.robust.view import View

MIXED_BYTES = 1 << 24
"""Largest size in bytes of one chunk of mixed rows; a chunk of 1024 coordinates may be larger."""


def unmixed(rows: View) -> View:
    """The K rows of the pool that a view reads, as a view without mixing; ids are 0, 1, ..."""
    k = len(rows.block_ND) if rows.index_K is None else len(rows.index_K)
    names = tuple(str(i) for i in range(k))
    return replace(rows, ids=names, mix_MK=None, weights_M=None, metadata={})


def pieces(rows: View) -> Iterator[tuple[int, int, Sequence[Tensor]]]:
    """Yields ranges of columns, each with the view's M rows in contiguous memory."""
    if rows.mix_MK is None and rows.block_ND.stride(1) == 1:
        held = rows.sources()
        for start, stop in rows.windows():
            yield start, stop, [row_D[start:stop] for row_D in held]
        return
    for start, stop, chunk_MC in rows.chunks(mixed_width(rows)):
        yield start, stop, chunk_MC.contiguous().unbind(0)


def plain_width(rows: View) -> int:
    """Number of coordinates per chunk if torch sums the chunk's products in the rows' precision."""
    return 1 << 14 if rows.device.type == "cpu" else 1 << 16


def mixed_width(rows: View) -> int:
    """Number of coordinates in one chunk of mixed rows."""
    size = max(1, len(rows)) * rows.block_ND.element_size()
    return max(1024, min(1 << 16, MIXED_BYTES // size) // 1024 * 1024)
