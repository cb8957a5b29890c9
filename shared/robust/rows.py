"""Rows: clients' updates in the order of the client ids, as a view of the pool that holds them.

Legend of shape suffixes: N rows of the pool, M rows that a stage sees, D coordinates.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rampart_fl.shared.robust import linalg
from rampart_fl.shared.robust.pool_statistics import PoolStatistics
from rampart_fl.shared.robust.shards import Group, Part
from rampart_fl.shared.robust.sketch import Traces
from rampart_fl.shared.robust.view import View

Updates = Tensor | NDArray[Any] | Sequence[Tensor | NDArray[Any] | Sequence[float]]
"""One update per row: a matrix, or a sequence of vectors of equal length."""
NARROW = (torch.float16, torch.bfloat16)
FLOATING = (*NARROW, torch.float32, torch.float64)


@dataclass(frozen=True, eq=False)
class Rows(View):
    """Clients' updates as rows, which the stages of a pipeline work on."""

    @staticmethod
    def of(
        updates_ND: Updates,
        ids: Sequence[str] | None = None,
        weights: Sequence[float] | Tensor | None = None,
        metadata: Mapping[str, Sequence[float] | Tensor] | None = None,
        *,
        traces: Traces | None = None,
        assume_finite: bool = False,
        group: Group | None = None,
    ) -> "Rows":
        """Rows in the order of their ids; non-finite rows are left out, and listed in `dropped`.

        Args:
            updates_ND: one update per row, in any floating dtype (16-bit dtypes are widened to 32
                bits); NumPy arrays and lists are copied.
            ids: a distinct name per row; the row's position by default.
            weights: one trusted weight per row, finite and > 0.
            metadata: numbers that the clients claim; each name maps to one number per row.
            traces: sketches of the rows, in the same order as `updates_ND`.
            assume_finite: whether all rows are kept, without a check that they are finite. The
                first pass that reads a non-finite number raises `linalg.NonFiniteRows`. Rows that
                no pass reads stay unchecked, so call `linalg.all_finite` after the last pass.
            group: the ranks that share the coordinates, which `shards.columns` divides among them.
                Every rank passes all rows in the same order, but only with the rank's own
                coordinates.
        Raises:
            ValueError: shapes do not match, ids repeat, or a weight is not finite and positive.

        >>> rows = Rows.of(torch.tensor([[1.0], [float("nan")], [3.0]]))
        >>> len(rows), rows.dropped
        (2, ('1',))
        """
        block_ND = _block(updates_ND).detach()
        if block_ND.ndim != 2 or block_ND.dtype not in FLOATING or block_ND.layout != torch.strided:
            raise ValueError(
                f"updates must be a dense floating [N, D] tensor, not {block_ND.dtype} "
                f"of shape {tuple(block_ND.shape)}"
            )
        if block_ND.dtype in NARROW:
            block_ND = block_ND.float()
        n = len(block_ND)
        width = len(str(max(n - 1, 0)))
        names = [str(i).zfill(width) for i in range(n)] if ids is None else [str(i) for i in ids]
        if len(names) != n or len(set(names)) != n:
            raise ValueError(
                f"{n} rows need {n} distinct ids, got {len(names)} ids ({len(set(names))} distinct)"
            )
        part = None if group is None else Part.of(block_ND.shape[1], group, block_ND.device)
        finite_N, known = [True] * n, PoolStatistics(unchecked=assume_finite)
        if not assume_finite:
            finite_N, known.squares_N = linalg.finite_and_squared_norms(block_ND, part)
        order = sorted((i for i in range(n) if finite_N[i]), key=lambda i: names[i])
        whole = order == list(range(n))
        return Rows(
            block_ND=block_ND,
            ids=tuple(names[i] for i in order),
            index_K=None if whole else torch.tensor(order, dtype=torch.long),
            weights_M=None if weights is None else _column(weights, n, "weights", True)[order],
            metadata={k: _column(v, n, k, False)[order] for k, v in (metadata or {}).items()},
            dropped=tuple(sorted(names[i] for i in range(n) if not finite_N[i])),
            traces=None if traces is None else traces.keep(torch.tensor(order, dtype=torch.long)),
            pool_statistics=known,
            part=part,
        )

    def row(self, position: int) -> Tensor:
        """A copy (D,) of one row of the view."""
        return linalg.row(self, position)

    def combine(self, coefficients_M: Tensor) -> Tensor:
        """The linear combination sum_i c_i row_i, (D,) in the pool's dtype, in one pass.

        Rows of the pool with coefficient 0 do not affect the result, even if they are not finite.
        """
        return linalg.combine(self, coefficients_M)


def _block(updates: Updates) -> Tensor:
    if isinstance(updates, Tensor):
        return updates
    if isinstance(updates, np.ndarray):
        return _copy(updates)
    vectors = [vector if isinstance(vector, Tensor) else _copy(vector) for vector in updates]
    if len({vector.shape for vector in vectors}) != 1:
        shapes = sorted({tuple(vector.shape) for vector in vectors})
        raise ValueError(f"updates must be vectors of one length, got shapes {shapes}")
    return torch.stack(vectors)


def _copy(values: NDArray[Any] | Sequence[float]) -> Tensor:
    if isinstance(values, np.ndarray):
        # torch accepts neither negative strides nor a non-native byte order.
        values = values.astype(values.dtype.newbyteorder("="), order="C")
    return torch.tensor(values)


def _column(values: Sequence[float] | Tensor, n: int, what: str, positive: bool) -> Tensor:
    column_N = torch.as_tensor(values, dtype=torch.float64).detach().cpu().clone()
    if column_N.shape != (n,):
        raise ValueError(
            f"{what} must have shape ({n},), one number per row; got {tuple(column_N.shape)}"
        )
    if positive and not bool(((column_N > 0) & column_N.isfinite()).all()):
        raise ValueError(f"{what} must be finite and positive")
    return column_N
