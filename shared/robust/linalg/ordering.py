"""Coordinate by coordinate: medians, trimmed means and means around the median.

On a CPU with a compiler a pruned sorting network runs on tiles of columns in cache; without one the
same network runs on blocks of rows in torch, or, from `SORT_FROM` rows on, numpy sorts transposed
blocks. Other devices sort.

Legend: M rows of the view, D coordinates, C coordinates of a chunk.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from shared.robust.base import Rows
from shared.robust.linalg import native
from shared.robust.linalg.networks import KEEP_MAX, KEEP_MIN, Comparator, network
from shared.robust.linalg.views import pieces, unmixed

MOST_WIRES = 1024
"""Rows up to which a compiled network is used."""
SORT_FROM = 33
"""Rows from which sorting beats a network that runs in torch."""
BLOCK = 16_384
"""Coordinates of a block on which a network runs in torch."""
SORT_BLOCK = 8192
"""Coordinates of a transposed block that is sorted."""
DEVICE_NUMBERS = 1 << 26
"""Numbers that another device sorts at once."""


def median(rows: Rows) -> Tensor:
    """Coordinate-wise median (D,); the mean of the middle two for an even number of rows.

    >>> median(Rows.of(torch.tensor([[1.0], [2.0], [3.0], [100.0]])))
    tensor([2.5000])
    """
    m = len(rows)
    return _by_rank(rows, (m - 1) // 2, m // 2 + 1)


def trimmed_mean(rows: Rows, b: int) -> Tensor:
    """Per coordinate (D,), the mean of the values without the b largest and b smallest.

    >>> trimmed_mean(Rows.of(torch.tensor([[1.0], [2.0], [4.0], [1e20]])), 1)
    tensor([3.])
    """
    return _by_rank(rows, b, len(rows) - b)


def mean_around_median(rows: Rows, keep: int) -> Tensor:
    """Per coordinate (D,), the mean of the `keep` values nearest the median.

    Of two values equally near the median the lower one counts as nearer.

    >>> mean_around_median(Rows.of(torch.tensor([[0.0], [1.0], [2.1], [3.3], [100.0]])), 4)
    tensor([1.6000])
    """
    if keep == len(rows):
        return _by_rank(rows, 0, keep)
    return _by_rank(rows, -1, keep)


def _by_rank(rows: Rows, first: int, last: int) -> Tensor:
    """Mean of the ranks first .. last - 1, or of the `last` ranks nearest the median if first < 0.

    Ranks are numbered from the least value.
    """
    m = len(rows)
    out_D = torch.empty(rows.dim, dtype=rows.block_ND.dtype, device=rows.device)
    kernels = native.kernels_for(out_D.dtype, rows.device)
    if kernels is not None and m <= MOST_WIRES:
        _compiled(kernels, rows, first, last, out_D)
    elif rows.device.type != "cpu":
        for start, stop, chunk_MC in rows.chunks(max(1, DEVICE_NUMBERS // m)):
            out_D[start:stop] = _mean(list(chunk_MC.sort(dim=0).values), first, last)
    elif m < SORT_FROM:
        _in_blocks(rows, BLOCK, _through_network, first, last, out_D)
    else:
        _in_blocks(rows, SORT_BLOCK, _through_sort, first, last, out_D)
    return out_D


def _compiled(kernels: native.Kernels, rows: Rows, first: int, last: int, out_D: Tensor) -> None:
    """The network on tiles; rows of the pool are mixed tile by tile on the way."""
    m, mix = len(rows), None
    if rows.mix_MK is not None and rows.block_ND.stride(1) == 1:
        mix = torch.zeros((m + 3) // 4 * 4, rows.mix_MK.shape[1], dtype=out_D.dtype)
        mix[:m] = rows.mix_MK
        rows = unmixed(rows)
    table = torch.tensor(_network(m, first, last), dtype=torch.int16).reshape(-1, 3)
    for start, stop, held in pieces(rows):
        kernels.call(
            "ranks",
            native.pointers(held),
            native.size(len(held)),
            native.size(stop - start),
            None if mix is None else native.address(mix),
            native.size(m),
            native.address(table),
            native.size(len(table)),
            native.size(first),
            native.size(last),
            native.address(out_D[start:stop]),
        )


def _network(m: int, first: int, last: int) -> Sequence[Comparator]:
    return network(m, 0, m, ordered=True) if first < 0 else network(m, first, last)


Work = Callable[[Tensor, int, int], Tensor]


def _in_blocks(rows: Rows, width: int, work: Work, first: int, last: int, out_D: Tensor) -> None:
    """Runs `work` on blocks of columns, on as many Python threads as torch uses."""

    def one(start: int) -> None:
        stop = min(start + width, rows.dim)
        for _, _, block_MC in rows.columns(slice(start, stop)).chunks(width):
            out_D[start:stop] = work(block_MC, first, last)

    starts = range(0, rows.dim, width)
    if native.threads() == 1 or len(starts) == 1:
        for start in starts:
            one(start)
        return
    with ThreadPoolExecutor(native.threads()) as pool:
        for _ in pool.map(one, starts):
            pass  # Raises what a block has raised.


def _through_network(block_MC: Tensor, first: int, last: int) -> Tensor:
    wires = list(block_MC.clone(memory_format=torch.contiguous_format))
    spare = torch.empty_like(wires[0])
    for i, j, kind in _network(len(wires), first, last):
        low, high = wires[i], wires[j]
        if kind == KEEP_MIN:
            torch.minimum(low, high, out=low)
        elif kind == KEEP_MAX:
            torch.maximum(low, high, out=high)
        else:
            torch.minimum(low, high, out=spare)
            torch.maximum(low, high, out=high)
            wires[i], spare = spare, low
    return _mean(wires, first, last)


def _through_sort(block_MC: Tensor, first: int, last: int) -> Tensor:
    sorted_CM = np.ascontiguousarray(block_MC.numpy().T)
    sorted_CM.sort(axis=1)
    if first >= 0:
        return torch.from_numpy(sorted_CM[:, first:last].mean(axis=1))
    return _mean(list(torch.from_numpy(sorted_CM.T)), first, last)


def _mean(ranks: Sequence[Tensor], first: int, last: int) -> Tensor:
    """Mean (C,) of some ranks; the same two cases as `kernels.c`."""
    if first >= 0:
        sum_C = ranks[first].clone()
        for rank_C in ranks[first + 1 : last]:
            sum_C += rank_C
        return sum_C.div_(last - first)
    m, keep = len(ranks), last
    twice_C = ranks[(m - 1) // 2].double() + ranks[m // 2]
    left = [ranks[j].double() + ranks[j + keep] < twice_C for j in range(m - keep)]
    sum_C = torch.zeros_like(ranks[0])
    for j, rank_C in enumerate(ranks):
        inside_C = torch.ones_like(rank_C, dtype=torch.bool) if j < keep else left[j - keep]
        if j < m - keep:
            inside_C = inside_C & ~left[j]
        sum_C += torch.where(inside_C, rank_C, 0)
    return sum_C.div_(keep)
