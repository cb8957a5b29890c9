"""Rows: clients' updates as a read-only view of a pool, seen through a mixing matrix.

Legend of shape suffixes: N rows of the pool, K of them in use, M rows that a stage sees,
L rows after a mix, D coordinates, C coordinates of one chunk.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rampart_fl.shared.device import to_device
from rampart_fl.shared.robust.sketch import Traces

Updates = Tensor | NDArray[Any] | Sequence[Tensor | NDArray[Any] | Sequence[float]]
"""One update per row: a matrix, or vectors of one length."""
NARROW = (torch.float16, torch.bfloat16)
FLOATING = (*NARROW, torch.float32, torch.float64)
CHUNK = 32_768
"""Default number of coordinates in one chunk."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Clients' updates as rows: a read-only view of a pool, seen through an optional mixing matrix.

    The view is `mix_MK @ block_ND[index_K]`: a selection of the pool's rows, then a mix of those
    (each the identity when None). Pre-aggregators return a new mix and never a second block;
    `chunks` applies it.

    Args:
        block_ND: the pool, one update per row; never written.
        ids: one name per row of the view; order of rows never matters beyond these names.
        index_K: which rows of the pool are read, in order, on the CPU; all of them when None.
        mix_MK: the mixing matrix over those rows, float64 on the CPU.
        weights_M: trusted weights (float64, > 0), 1 each by default.
        metadata: numbers per row by name: what clients claim ("loss_gap"), and what the server
            measured ("moved", the norm of the raw upload; "fresh", 0 if judged before).
        dropped: ids of rows already left out because they were not finite.
        traces: what detectors remember the rows by, where one asks for it.
        cache: what was measured of the pool, shared by all views of it.
    """

    block_ND: Tensor
    ids: tuple[str, ...]
    index_K: Tensor | None = None
    mix_MK: Tensor | None = None
    weights_M: Tensor | None = None
    metadata: Mapping[str, Tensor] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    traces: Traces | None = None
    cache: dict[str, Any] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(
        updates_ND: Updates,
        ids: Sequence[str] | None = None,
        weights: Sequence[float] | Tensor | None = None,
        metadata: Mapping[str, Sequence[float] | Tensor] | None = None,
        *,
        traces: Traces | None = None,
        assume_finite: bool = False,
    ) -> "Rows":
        """Rows in canonical order (by id), non-finite ones left out and named in `dropped`.

        Args:
            updates_ND: one update per row, any floating dtype (16-bit ones are widened); NumPy
                arrays and lists are copied.
            ids: a distinct name per row; the position by default.
            weights: trusted weights per row, finite and > 0.
            metadata: claimed numbers per row.
            traces: of the rows, in the order given.
            assume_finite: leave out no row. The first pass over the rows that meets a number that
                is not finite raises `linalg.NotFinite`; ask `linalg.all_finite` in the end.
        Raises:
            ValueError: shapes do not fit, ids repeat, a weight is not finite and positive.

        >>> rows = Rows.of(torch.tensor([[1.0], [float("nan")], [3.0]]))
        >>> len(rows), rows.dropped
        (2, ('1',))
        """
        from rampart_fl.shared.robust import linalg

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
                f"{n} rows need {n} distinct ids, got {len(set(names))} of {len(names)}"
            )
        finite_N, cache = [True] * n, dict[str, Any](finite=not assume_finite)
        if not assume_finite:
            finite_N, cache["squares"] = linalg.survey(block_ND)
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
            cache=cache,
        )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def dim(self) -> int:
        """Number of coordinates D."""
        return self.block_ND.shape[1]

    @property
    def device(self) -> torch.device:
        """Where the pool lives."""
        return self.block_ND.device

    def trusted_weights(self) -> Tensor:
        """Weights (M,) in float64 on the CPU, 1 each where none were given."""
        if self.weights_M is None:
            return torch.ones(len(self), dtype=torch.float64)
        return self.weights_M

    def fresh(self) -> list[bool]:
        """Whether each row is a new update; False where it was judged in an earlier round already.

        >>> Rows.of(torch.eye(2), metadata={"fresh": [1, 0]}).fresh()
        [True, False]
        """
        told_M = self.metadata.get("fresh")
        return [True] * len(self) if told_M is None else [bool(new) for new in told_M.tolist()]

    def chunks(self, size: int = CHUNK) -> Iterator[tuple[int, int, Tensor]]:
        """Column bounds with the chunk (M, C) of the view, which the caller must not write to."""
        mix_MK = self.mix_MK
        if mix_MK is not None:
            mix_MK = to_device(mix_MK, self.device, self.block_ND.dtype)
        index_K = None if self.index_K is None else to_device(self.index_K, self.device)
        for start in range(0, self.dim, size):
            stop = min(start + size, self.dim)
            block_KC = self.block_ND[:, start:stop]
            if index_K is not None:
                block_KC = block_KC.index_select(0, index_K)
            yield start, stop, block_KC if mix_MK is None else mix_MK @ block_KC

    def row(self, position: int) -> Tensor:
        """One row (D,) of the view, as a copy."""
        if self.mix_MK is not None:
            unit_M = torch.zeros(len(self), dtype=torch.float64)
            unit_M[position] = 1
            return self.combine(unit_M)
        source = position if self.index_K is None else int(self.index_K[position])
        return self.block_ND[source].clone()

    def combine(self, coefficients_M: Tensor) -> Tensor:
        """The linear combination sum_i c_i row_i, (D,) in the pool's dtype; one pass.

        Rows of the pool with coefficient 0 are not read into the result, whatever they hold.
        """
        from rampart_fl.shared.robust import linalg

        return linalg.combine(self, coefficients_M)

    def keep(self, positions: Sequence[int] | Tensor) -> "Rows":
        """The view restricted to some rows, in the order given (no copy of the pool)."""
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

    def columns(self, which: slice | Tensor) -> "Rows":
        """The same rows over some coordinates only: no copy for a slice, a gather for indices.

        >>> Rows.of(torch.tensor([[1.0, 2.0, 3.0]])).columns(slice(1, 3)).row(0)
        tensor([2., 3.])
        """
        cache = {"finite": self.cache["finite"]} if "finite" in self.cache else {}
        if isinstance(which, Tensor):
            # Several times as fast as indexing, for drawn coordinates.
            return replace(
                self,
                block_ND=self.block_ND.index_select(1, to_device(which, self.device)),
                cache=cache,
            )
        return replace(self, block_ND=self.block_ND[:, which], cache=cache)

    def mixed(
        self, by_LM: Tensor, ids: Sequence[str] | None = None, weights_L: Tensor | None = None
    ) -> "Rows":
        """L new rows `by_LM @ rows`, without a copy of the pool.

        Ids, weights, metadata and traces stay where L = M and no others are given.
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


def _block(updates: Updates) -> Tensor:
    if isinstance(updates, Tensor):
        return updates
    if isinstance(updates, np.ndarray):
        return _copied(updates)
    given = [vector if isinstance(vector, Tensor) else _copied(vector) for vector in updates]
    if len({vector.shape for vector in given}) != 1:
        shapes = sorted({tuple(vector.shape) for vector in given})
        raise ValueError(f"updates must be vectors of one length, got shapes {shapes}")
    return torch.stack(given)


def _copied(values: NDArray[Any] | Sequence[float]) -> Tensor:
    if isinstance(values, np.ndarray):
        # Reversed views and files of other machines: torch takes neither.
        values = values.astype(values.dtype.newbyteorder("="), order="C")
    return torch.tensor(values)


def _column(values: Sequence[float] | Tensor, n: int, what: str, positive: bool) -> Tensor:
    column_N = torch.as_tensor(values, dtype=torch.float64).detach().cpu().clone()
    if column_N.shape != (n,):
        raise ValueError(f"{n} rows need {n} {what}, got shape {tuple(column_N.shape)}")
    if positive and not bool(((column_N > 0) & column_N.isfinite()).all()):
        raise ValueError(f"{what} must be finite and positive")
    return column_N
