"""Linear combinations, norms and inner products of rows.

Legend: a view has M rows and reads K rows of the pool; a row has D coordinates, a chunk has C of
these coordinates.
"""

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import add

import numpy as np
import torch
from torch import Tensor

from rampart_fl.shared.robust.linalg import native
from rampart_fl.shared.robust.linalg.finite import assumed_finite, finite_rows, record_pass
from rampart_fl.shared.robust.linalg.views import pieces, plain_width, unmixed
from rampart_fl.shared.robust.shards import Part
from rampart_fl.shared.robust.view import View
from rampart_fl.shared.runtime.device import to_device

TINY = 1e-30
"""If the mean square of a row's coordinates is below this bound, float32 squares can underflow."""
BLOCK = 8192
"""Number of coordinates that are converted to float64 at a time."""


def finite_and_squared_norms(
    block_ND: Tensor, part: Part | None = None
) -> tuple[list[bool], Tensor]:
    """Computes in one pass which rows are finite, and the squared norms (N,) of all rows.

    Args:
        block_ND: the rows.
        part: the coordinates that this rank holds; None if it holds all coordinates.

    >>> finite_and_squared_norms(torch.tensor([[1.0, 2.0], [float("inf"), 0.0]]))
    ([True, False], tensor([5., inf], dtype=torch.float64))
    """
    pool = View(block_ND, ids=tuple(str(i) for i in range(len(block_ND))), part=part)
    squares_N = _products(pool, None)[:, 0]
    finite = squares_N.isfinite().tolist()
    for i, known in enumerate(finite):
        # A non-finite squared norm may be an overflow, so the numbers of the row are checked.
        finite[i] = known or pool.place.every(finite_rows(block_ND[i : i + 1])[0])
    return finite, squares_N


def all_finite(rows: View) -> bool:
    """Whether all values in the pool are finite; reads the pool if it has not been checked yet."""
    if assumed_finite(rows):
        rows.pool_statistics.unchecked = not all(
            finite_and_squared_norms(rows.block_ND, rows.part)[0]
        )
    return not assumed_finite(rows)


def combine(rows: View, coefficients_M: Tensor) -> Tensor:
    """The linear combination sum_i c_i row_i (D,) in the pool's dtype.

    Rows with coefficient 0 are never read, so they do not affect the result even if they are not
    finite.

    >>> from rampart_fl.shared.robust import Rows
    >>> combine(Rows.of(torch.tensor([[1.0, 2.0], [3.0, 4.0]])), torch.tensor([0.5, 0.5]))
    tensor([2., 3.])
    """
    coefficients_K = coefficients_M.to(torch.float64).cpu()
    if rows.mix_MK is not None:
        coefficients_K = coefficients_K @ rows.mix_MK
    used = coefficients_K.nonzero().flatten().tolist()
    weights = coefficients_K[used].contiguous()
    out_D = torch.empty(rows.dim, dtype=rows.block_ND.dtype, device=rows.device)
    if not used:
        return out_D.zero_()
    chosen = unmixed(rows)
    if len(used) < len(coefficients_K):
        chosen = chosen.keep(used)
    kernels = native.kernels_for(out_D.dtype, rows.device)
    if kernels and rows.block_ND.stride(1) == 1:
        broken = False
        for start, stop, held in pieces(chosen):
            broken |= bool(
                kernels.call(
                    "weighted_sum",
                    held,
                    stop - start,
                    native.address(weights),
                    native.address(out_D[start:stop]),
                    sums=1,
                ).item()
            )
        record_pass(chosen, clean=not broken)
        return out_D
    # A chunk's rows are copied in the order of ids, so the rows' order in memory has no effect.
    shares = to_device(weights, rows.device, out_D.dtype)
    for start, stop, chunk_KC in chosen.chunks(chosen.width(plain_width(rows))):
        out_D[start:stop] = shares @ chunk_KC.contiguous()
    if assumed_finite(rows):
        record_pass(chosen, clean=bool(out_D.isfinite().all()))
    return out_D


def row(rows: View, position: int) -> Tensor:
    """A copy (D,) of one row of the view."""
    if rows.mix_MK is not None:
        unit_M = torch.zeros(len(rows), dtype=torch.float64)
        unit_M[position] = 1
        return combine(rows, unit_M)
    source = position if rows.index_K is None else int(rows.index_K[position])
    held_D = rows.block_ND[source]
    copy_D = held_D.clone()
    if rows.file is not None:
        rows.file.release([held_D])
    return copy_D


def uniform(m: int, positions: Sequence[int] | Tensor) -> Tensor:
    """Coefficients (M,) with which `combine` computes the mean of some rows.

    >>> uniform(3, [0, 2])
    tensor([0.5000, 0.0000, 0.5000], dtype=torch.float64)
    """
    weights_M = torch.zeros(m, dtype=torch.float64)
    weights_M[torch.as_tensor(positions, dtype=torch.long)] = 1 / len(positions)
    return weights_M


def norms(rows: View, centre_D: Tensor | None = None) -> Tensor:
    """Euclidean norms |row_i - centre| (M,), in float64 on the CPU; the centre is 0 by default.

    >>> from rampart_fl.shared.robust import Rows
    >>> norms(Rows.of(torch.tensor([[3.0, 4.0], [0.0, 0.0]])))
    tensor([5., 0.], dtype=torch.float64)
    """
    if centre_D is not None:
        return _products(rows, centre_D)[:, 0].sqrt()
    return squared_norms(rows).sqrt()


def squared_norms(rows: View) -> Tensor:
    """Squared norms |row_i|² (M,), in float64 on the CPU; the norms of a whole pool are cached.

    >>> from rampart_fl.shared.robust import Rows
    >>> squared_norms(Rows.of(torch.tensor([[3.0, 4.0], [0.0, 0.0]])))
    tensor([25.,  0.], dtype=torch.float64)
    """
    known = rows.pool_statistics
    if rows.mix_MK is not None:
        return _products(rows, None)[:, 0]
    if known.squares_N is not None and known.squares_of is None:
        return known.squares_N if rows.index_K is None else known.squares_N[rows.index_K]
    squares_M = _products(rows, None)[:, 0]
    if rows.index_K is None:
        known.squares_N, known.squares_of = squares_M, None
    return squares_M


def norm(vector_D: Tensor, part: Part | None = None) -> float:
    """Euclidean norm of one vector, with squares and sums in float64.

    The norm is always computed on the CPU, in blocks that fit into the CPU's cache. The result is
    therefore the same for every device and for every number of ranks. For large float32 vectors on
    a CPU, this function is about twenty times as fast as torch's own float64 norm.

    Args:
        vector_D: the vector.
        part: the coordinates that this rank holds; None if it holds all coordinates.

    >>> norm(torch.tensor([3.0, 4.0]))
    5.0
    """
    place, numbers_D = part or Part(len(vector_D), 0, len(vector_D)), vector_D.cpu().numpy()

    def squares(begin: int, end: int) -> Iterator[tuple[int, float]]:
        for start in range(begin, end, BLOCK):
            block = numbers_D[start : min(start + BLOCK, end)].astype(np.float64)
            with np.errstate(over="ignore"):  # The norm of large float64 numbers may be infinite.
                square = float(block @ block)
            yield start, square

    shards = (squares(begin, end) for begin, end in place.own())
    if place.group is None:
        # This code adds the same numbers in the same order as `Part.total`, but does not make a
        # tensor for each block. The root is computed by torch, because the result of `math.sqrt`
        # may differ in the last bit.
        total = reduce(add, (reduce(add, (s for _, s in one)) for one in shards), 0.0)
        return float(torch.tensor(total, dtype=torch.float64).sqrt())
    blocks = ((start, torch.tensor(s, dtype=torch.float64)) for one in shards for start, s in one)
    return float(place.total(blocks, ()).sqrt())


def dots(rows: View, vector_D: Tensor) -> Tensor:
    """Inner products <row_i, vector> (M,), float64 on the CPU."""
    return _products(rows, vector_D)[:, 1]


def _products(rows: View, centre_D: Tensor | None) -> Tensor:
    """|row_i - centre|² and <row_i, centre> as columns (M, 2), float64 on the CPU."""
    sums_M2 = _sums(rows, centre_D)
    if rows.mix_MK is None:
        record_pass(rows, clean=bool(sums_M2.isfinite().all()))
    return sums_M2


def _sums(rows: View, centre_D: Tensor | None) -> Tensor:
    m = len(rows)
    kernels = native.kernels_for(rows.block_ND.dtype, rows.device)
    if kernels is None:
        sums_M2 = _products_by_torch(rows, centre_D, wide=False)
        lost = (sums_M2[:, 0] < TINY * rows.whole_dim) | ~sums_M2.isfinite().all(dim=1)
        if bool(lost.any()):
            sums_M2[lost] = _products_by_torch(rows.keep(lost.nonzero().flatten()), centre_D, True)
        return sums_M2
    centre_D = None if centre_D is None else centre_D.to(torch.float64).contiguous()
    sums = (
        (
            start,
            kernels.call(
                "products",
                held,
                stop - start,
                None if centre_D is None else native.address(centre_D[start:stop]),
                sums=2 * m,
            ).reshape(m, 2),
        )
        for start, stop, held in pieces(rows)
    )
    return rows.place.total(sums, (m, 2))


def _products_by_torch(rows: View, centre_D: Tensor | None, wide: bool) -> Tensor:
    dtype = torch.float64 if wide else rows.block_ND.dtype

    def sums() -> Iterator[tuple[int, Tensor]]:
        for start, stop, chunk_MC in rows.chunks(plain_width(rows)):
            chunk_MC = chunk_MC.to(dtype)
            along_M = chunk_MC.new_zeros(len(rows))
            if centre_D is not None:
                centre_C = to_device(centre_D[start:stop], rows.device)
                along_M = chunk_MC @ centre_C.to(dtype)
                chunk_MC = (chunk_MC - centre_C).to(dtype)
            yield start, torch.stack([torch.linalg.vecdot(chunk_MC, chunk_MC), along_M], dim=1)

    return rows.place.total(sums(), (len(rows), 2))


def gram(rows: View, centre: int | None = None) -> Tensor:
    """Inner products <row_i - c, row_j - c> (M, M), float64 on the CPU, symmetric.

    For float32 rows, products are computed in float32, and blocks of products are summed in
    float64. If products overflow or underflow in float32, the whole matrix is recomputed in
    float64.

    Args:
        rows: the rows to multiply.
        centre: position of the row c that is subtracted from all rows; by default, nothing is
            subtracted.

    >>> from rampart_fl.shared.robust import Rows
    >>> gram(Rows.of(torch.tensor([[3.0, 4.0], [1.0, 0.0]])))
    tensor([[25.,  3.],
            [ 3.,  1.]], dtype=torch.float64)
    """
    gram_MM = _gram(rows, centre, wide=False)
    if rows.mix_MK is None:
        record_pass(rows, clean=bool(gram_MM.diagonal().isfinite().all()))
    if rows.block_ND.dtype != torch.float64 and _lost_precision(rows, centre, gram_MM):
        return _gram(rows, centre, wide=True)
    return gram_MM


def _lost_precision(rows: View, centre: int | None, gram_MM: Tensor) -> bool:
    """Whether float32 products overflowed, or the squared norm of a non-zero row underflowed."""
    if not bool(gram_MM.isfinite().all()):
        return True
    small_M = gram_MM.diagonal() < TINY * rows.whole_dim
    small = [row for row in small_M.nonzero().flatten().tolist() if row != centre]
    if not small:
        return False
    centre_D = None if centre is None else row(rows, centre)
    return bool((norms(rows.keep(small), centre_D) > 0).any())


def _gram(rows: View, centre: int | None, wide: bool) -> Tensor:
    m = len(rows)
    kernels = native.kernels_for(rows.block_ND.dtype, rows.device, wide)
    if kernels is None:
        return _gram_by_torch(rows, centre, wide)
    sums = (
        (
            start,
            kernels.call(
                "gram",
                held,
                stop - start,
                None if centre is None else native.address(held[centre]),
                sums=m * m,
            ).reshape(m, m),
        )
        for start, stop, held in pieces(rows)
    )
    total_MM = rows.place.total(sums, (m, m))
    # The kernel fills only the lower triangle of the matrix.
    total_MM = total_MM + total_MM.T
    total_MM.diagonal().mul_(0.5)
    return total_MM


def _gram_by_torch(rows: View, centre: int | None, wide: bool) -> Tensor:
    m = len(rows)

    def sums() -> Iterator[tuple[int, Tensor]]:
        for start, _, chunk_MC in rows.chunks(plain_width(rows)):
            held_MC = chunk_MC.double() if wide else chunk_MC
            if centre is not None:
                held_MC = held_MC - held_MC[centre]
            yield start, held_MC @ held_MC.T

    total_MM = rows.place.total(sums(), (m, m))
    return (total_MM + total_MM.T) / 2
