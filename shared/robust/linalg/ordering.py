"""Coordinate-wise medians, trimmed means and means around the median.

On a CPU, a compiled, pruned sorting network runs on tiles of columns that fit into the cache.
Without compiled kernels, the method depends on the number of rows. For fewer than `SORT_FROM` rows,
torch runs the same network on blocks of columns. For more rows, numpy sorts transposed blocks. For
more than `MOST_WIRES` rows, numpy sorts even if there are compiled kernels. On devices other than
CPUs, torch sorts.

Legend: M rows of the view, K rows of the pool that the view reads, D coordinates, C coordinates of
a chunk. The counts R = 1 + M and S = K + 1 include the base row, which `sparse_mixing` explains.
"""

import functools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from rampart_fl.shared.robust.linalg import native
from rampart_fl.shared.robust.linalg.finite import record_pass
from rampart_fl.shared.robust.linalg.networks import KEEP_MAX, KEEP_MIN, Comparator, network
from rampart_fl.shared.robust.linalg.views import pieces, unmixed
from rampart_fl.shared.robust.view import View

MOST_WIRES = 1024
"""Largest number of rows for which a compiled sorting network is used."""
SORT_FROM = 33
"""Smallest number of rows for which numpy's sort is faster than a sorting network in torch."""
BLOCK = 65_536
"""Largest number of coordinates per block if a sorting network runs in torch."""
BLOCKS = 8
"""To save memory, the coordinates are split into about this number of blocks, or more."""
SORT_BLOCK = 8192
"""Number of coordinates in a transposed block that numpy sorts."""
DEVICE_NUMBERS = 1 << 26
"""Number of values that a device other than the CPU sorts at once."""
TIE = 4
"""Number of rounding errors by which two distances from the median may differ. Up to this
difference, two values of mixed rows count as equally near the median.

NNM can make rows whose values are equally near the median in every coordinate. For example, each of
the mixed rows a, b, c and d may be the mean of a set of rows. The sets of a and b may together
contain the same rows as the sets of c and d. Without this tolerance, rounding errors would decide
which value is used, and rounding errors differ between processors."""


def median(rows: View) -> Tensor:
    """Coordinate-wise median (D,); for an even number of rows, the mean of the two middle values.

    >>> from rampart_fl.shared.robust import Rows
    >>> median(Rows.of(torch.tensor([[1.0], [2.0], [3.0], [100.0]])))
    tensor([2.5000])
    """
    m = len(rows)
    return _by_rank(rows, (m - 1) // 2, m // 2 + 1)


def trimmed_mean(rows: View, b: int) -> Tensor:
    """Per coordinate (D,), the mean of all values except the b largest and the b smallest values.

    >>> from rampart_fl.shared.robust import Rows
    >>> trimmed_mean(Rows.of(torch.tensor([[1.0], [2.0], [4.0], [1e20]])), 1)
    tensor([3.])
    """
    return _by_rank(rows, b, len(rows) - b)


def mean_around_median(rows: View, keep: int) -> Tensor:
    """Per coordinate (D,), the mean of the `keep` values nearest the median.

    If two values are equally near the median, the lower value is preferred; see `TIE`.

    >>> from rampart_fl.shared.robust import Rows
    >>> mean_around_median(Rows.of(torch.tensor([[0.0], [1.0], [2.1], [3.3], [100.0]])), 4)
    tensor([1.6000])
    """
    if keep == len(rows):
        return _by_rank(rows, 0, keep)
    return _by_rank(rows, -1, keep)


def _by_rank(rows: View, first: int, last: int) -> Tensor:
    """Per coordinate, the mean of the values with ranks `first`, ..., `last - 1`.

    The smallest value has rank 0. If `first` is negative, the result is instead the mean of the
    `last` values nearest the median.
    """
    m = len(rows)
    out_D = torch.empty(rows.dim, dtype=rows.block_ND.dtype, device=rows.device)
    tie = 0.0 if rows.mix_MK is None else TIE * torch.finfo(out_D.dtype).eps
    kernels = native.kernels_for(out_D.dtype, rows.device)
    if kernels is not None and m <= MOST_WIRES:
        _run_compiled(kernels, rows, first, last, tie, out_D)
    elif rows.device.type != "cpu":
        for start, stop, chunk_MC in rows.chunks(max(1, DEVICE_NUMBERS // m)):
            out_D[start:stop] = _mean(chunk_MC.sort(dim=0).values, first, last, tie)
    elif m < SORT_FROM:
        # The width is the same in every process, and divides the width of a shard. The same numbers
        # are therefore added in the same order, whatever the number of processes.
        width = min(BLOCK, 1 << max(10, (rows.whole_dim // BLOCKS).bit_length() - 1))
        for start, stop, chunk_MC in rows.chunks(width):
            out_D[start:stop] = _through_network(chunk_MC, first, last, tie)
    else:
        _through_sort(rows, first, last, tie, out_D)
    return out_D


def _run_compiled(
    kernels: native.Kernels, rows: View, first: int, last: int, tie: float, out_D: Tensor
) -> None:
    """Runs the compiled network on tiles of columns; the kernel mixes the rows of each tile."""
    m, mix = len(rows), None
    if rows.mix_MK is not None and rows.block_ND.stride(1) == 1:
        starts, froms, by = sparse_mixing(rows.mix_MK)
        by = by.to(out_D.dtype)
        mix = (native.address(starts), native.address(froms), native.address(by))
        rows = unmixed(rows)
    table, clean, whole = _table(m, first, last), True, rows.mix_MK is None
    for start, stop, held in pieces(rows):
        broken = kernels.call(
            "ranks",
            held,
            stop - start,
            *(mix or (None, None, None)),
            native.size(m),
            native.address(table),
            native.size(len(table)),
            native.size(first),
            native.size(last),
            native.real(tie),
            native.address(out_D[start:stop]),
            sums=1,
        )
        clean &= not broken.item()
    if whole:
        record_pass(rows, clean)


def sparse_mixing(mix_MK: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A mixing matrix in sparse form: a mixed row is a sum of terms (a factor times a row).

    Returns three tensors. The first tensor (M + 2,) contains the index of each row's first term;
    its last entry is the number of all terms. The second tensor contains the row of each term, and
    the third tensor the factor of each term.

    The first row of the sparse form is a base row. The other rows of the sparse form can use the
    base row as if it were row K of the pool. Each coefficient of the base row is the median of one
    column of the mixing matrix. If most mixed rows leave out a row of the pool, the base row
    therefore leaves it out, too. If a base row would save no terms, the returned base row is empty.
    If all mixed rows are means of nearly the same rows of the pool, the base row reduces each mixed
    row to a few terms.

    >>> mix_MK = torch.tensor([[1.0, 1, 1], [1, 1, 1], [1, 1, 0]])
    >>> [terms.tolist() for terms in sparse_mixing(mix_MK)]
    [[0, 3, 4, 5, 7], [0, 1, 2, 3, 3, 2, 3], [1.0, 1.0, 1.0, 1.0, 1.0, -1.0, 1.0]]
    """
    base_K = mix_MK.median(dim=0).values
    off_MK = mix_MK - base_K
    shared = int((off_MK != 0).sum()) + int((base_K != 0).sum()) + len(mix_MK)
    if shared >= int((mix_MK != 0).sum()):
        base_K, off_MK = torch.zeros_like(base_K), mix_MK
    built_M = torch.full((len(mix_MK), 1), float(bool(base_K.any())), dtype=mix_MK.dtype)
    whole_RK = torch.cat([base_K[None], off_MK])
    whole_RS = torch.cat([whole_RK, torch.cat([torch.zeros_like(built_M[:1]), built_M])], dim=1)
    used_RS = whole_RS != 0
    starts = torch.zeros(len(whole_RS) + 1, dtype=torch.int64)
    starts[1:] = used_RS.sum(dim=1).cumsum(dim=0)
    return starts, used_RS.nonzero()[:, 1].to(torch.int32), whole_RS[used_RS]


@functools.lru_cache(maxsize=256)
def _table(m: int, first: int, last: int) -> Tensor:
    """The comparators of the sorting network, as a tensor that the C kernel reads."""
    return torch.tensor(_network(m, first, last), dtype=torch.int16).reshape(-1, 3)


def _network(m: int, first: int, last: int) -> Sequence[Comparator]:
    return network(m, 0, m, ordered=True) if first < 0 else network(m, first, last)


def _through_network(chunk_MC: Tensor, first: int, last: int, tie: float) -> Tensor:
    wires = list(chunk_MC.clone(memory_format=torch.contiguous_format))
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
    if first < 0:
        return _mean(torch.stack(wires), first, last, tie)
    return _mean(torch.stack(wires[first:last]), 0, last - first, tie)


def _through_sort(rows: View, first: int, last: int, tie: float, out_D: Tensor) -> None:
    """Sorts transposed blocks on as many Python threads as torch uses.

    The threads run in parallel because numpy releases the GIL.
    """

    def one(start: int) -> None:
        stop = min(start + SORT_BLOCK, rows.dim)
        for _, _, block_MC in rows.columns(slice(start, stop)).chunks(SORT_BLOCK):
            sorted_CM = np.array(block_MC.numpy().T, order="C")
            sorted_CM.sort(axis=1)
            if first >= 0:
                means_C = sorted_CM[:, first:last].mean(axis=1, dtype=np.float64)
                out_D[start:stop] = torch.from_numpy(means_C)
            else:
                out_D[start:stop] = _mean(torch.from_numpy(sorted_CM.T), first, last, tie)

    with ThreadPoolExecutor(native.threads()) as pool:
        for _ in pool.map(one, range(0, rows.dim, SORT_BLOCK)):
            pass  # If a block raised an exception, reading the results raises it again.


def _mean(sorted_MC: Tensor, first: int, last: int, tie: float) -> Tensor:
    """Mean (C,) of the values that `first` and `last` select, as in `_by_rank`.

    Let s be the sum of the absolute values of two values. The two values are equally near the
    median if their distances from the median differ by at most s times `tie`.
    """
    if first >= 0:
        return sorted_MC[first:last].mean(dim=0, dtype=torch.float64)
    m, keep = len(sorted_MC), last
    spare = m - keep
    twice_C = sorted_MC[(m - 1) // 2].double() + sorted_MC[m // 2]
    low_SC, high_SC = sorted_MC[:spare].double(), sorted_MC[keep:].double()
    left_SC = twice_C - (low_SC + high_SC) > tie * (low_SC.abs() + high_SC.abs())
    inside_MC = torch.ones_like(sorted_MC, dtype=torch.bool)
    inside_MC[keep:] = left_SC
    inside_MC[:spare] &= ~left_SC
    return torch.where(inside_MC, sorted_MC, 0).sum(dim=0, dtype=torch.float64).div_(keep)
