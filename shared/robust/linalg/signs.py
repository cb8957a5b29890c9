"""Counts of the positive, negative and zero coordinates of every row.

Legend: M rows of the view, R coordinates that are counted.
"""

from dataclasses import replace

import torch
from torch import Tensor

from rampart_fl.shared.robust.linalg import native
from rampart_fl.shared.robust.linalg.views import pieces
from rampart_fl.shared.robust.view import CHUNK, View


def signs(rows: View, columns_R: Tensor | None = None) -> Tensor:
    """Counts (M, 3) of positive, negative and zero coordinates, in float64 on the CPU.

    Args:
        columns_R: which coordinates are counted; None if all coordinates are counted.

    >>> from rampart_fl.shared.robust import Rows
    >>> signs(Rows.of(torch.tensor([[3.0, -1.0, 0.0, 2.0]])))
    tensor([[2., 1., 1.]], dtype=torch.float64)
    """
    count = rows.whole_dim if columns_R is None else len(columns_R)
    kernels = native.kernels_for(rows.block_ND.dtype, rows.device)
    counts_M2 = torch.zeros(len(rows), 2, dtype=torch.float64, device=rows.device)
    if columns_R is not None and rows.part is not None:
        columns_R = columns_R[rows.part.inside(columns_R)] - rows.part.start
    if kernels and rows.mix_MK is None and rows.block_ND.stride(1) == 1:
        for start, stop, held in pieces(rows):
            drawn_R = None if columns_R is None else _within(columns_R, start, stop)
            counts_M2 += kernels.call(
                "signs",
                held,
                stop - start if drawn_R is None else len(drawn_R),
                None if drawn_R is None else native.address(drawn_R),
                sums=2 * len(rows),
            ).reshape(len(rows), 2)
    else:
        # By default, `sign_guard` draws a tenth of the columns. A copy of all drawn columns would
        # need much memory, so the columns are copied in pieces.
        drawn = () if columns_R is None else torch.split(columns_R, CHUNK)
        here = replace(rows, part=None)
        for part in [here] if columns_R is None else map(here.columns, drawn):
            for _, _, chunk_MC in part.chunks():
                counts_M2[:, 0] += (chunk_MC > 0).sum(dim=1)
                counts_M2[:, 1] += (chunk_MC < 0).sum(dim=1)
    # Sums of integers are exact in any order, so the counts need not be summed shard by shard.
    if rows.part is not None:
        counts_M2 = rows.part.total([(0, counts_M2)] if rows.dim else [], (len(rows), 2))
    zeros_M1 = count - counts_M2.sum(dim=1, keepdim=True)
    return torch.cat([counts_M2, zeros_M1], dim=1).cpu()


def _within(columns_R: Tensor, start: int, stop: int) -> Tensor:
    """The entries of `columns_R` in [start, stop), relative to `start`; copied only if needed."""
    inside_R = (columns_R >= start) & (columns_R < stop)
    return columns_R if start == 0 and bool(inside_R.all()) else columns_R[inside_R] - start
