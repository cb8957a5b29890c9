"""Caches measurements of a pool's rows, so that later passes do not repeat them.

Legend: N rows of the pool, M rows that were measured.
"""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Geometry:
    """Inner products of rows relative to one row c of the pool, and distances between the rows.

    Args:
        gram_MM: <row_i - c, row_j - c>, float64; infinite if float64 overflows.
        squared_MM: |row_i - row_j|², float64, symmetric, diagonal 0.
    """

    gram_MM: Tensor
    squared_MM: Tensor


@dataclass(eq=False)
class PoolStatistics:
    """Measurements of one pool, shared by all views of the pool.

    Each pass over the rows stores its measurements in this object. The measurements are valid for
    one block of rows only. A view of a different block or of different columns has its own
    `PoolStatistics`.

    Args:
        unchecked: whether the rows are only assumed to be finite, because no pass has read all rows
            yet.
        squares_N: squared norms of all rows, float64 on the CPU; None before they are measured.
        squares_of: the columns that `squares_N` covers; None if it covers all columns.
        geometry: the geometry of some rows; None before it is measured.
        positions: the rows that `geometry` describes, as positions in the block.
    """

    unchecked: bool = False
    squares_N: Tensor | None = None
    squares_of: slice | None = None
    geometry: Geometry | None = None
    positions: tuple[int, ...] = ()

    def of_columns(self, which: slice) -> "PoolStatistics":
        """Statistics for a view of these columns, without measurements of other columns."""
        squares_N = self.squares_N if which == self.squares_of else None
        return PoolStatistics(self.unchecked, squares_N)
