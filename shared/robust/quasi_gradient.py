"""Weights from quasi-gradients: the base class of the spectral rules in the PAwBRoFL paper.

Legend: M rows, D coordinates.
"""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from pydantic import Field
from torch import Tensor

from rampart_fl.shared.robust import linalg, spectral
from rampart_fl.shared.robust.base import Context, Report, Rows, Rule, State


@dataclass(frozen=True, eq=False)
class Weighting:
    """The weights that a rule gives to rows.

    Args:
        weights_M: the weights q of the rows, which add up to 1.
        iterations: number of steps taken.
        converged: whether the top variance ‖Cov_q‖₂ fell to the threshold ξ or below.
    """

    weights_M: Tensor
    iterations: int
    converged: bool


class QuasiGradientRule(Rule):
    """Computes a weighted mean of the rows, with low weights for outliers.

    The result is sum_i q_i x_i; the weights q of the rows x_i sum to 1. Here, μ_q and Cov_q are the
    mean and the covariance of the rows with these weights. The vector v is the top eigenvector of
    Cov_q, and ‖Cov_q‖₂ is the top eigenvalue. The rule lowers the weights of rows with a large
    g_i = (vᵀ(x_i - μ_q))² until ‖Cov_q‖₂ is at most ξ. All of q, g and ‖Cov_q‖₂ are computed from
    the M x M matrix of squared distances.
    """

    xi: float | None = Field(default=None, gt=0)
    """ξ, the largest variance allowed along any direction, in squared units of the updates. The
    default depends on the smallest ball that is centred on a row and contains n - f rows: ξ is
    twice the top variance of the rows in this ball. If at most f rows are hostile, the distances
    between honest rows bound this default."""
    block_size: int | None = Field(default=None, ge=1)
    """Number of coordinates in a block; each block has its own weights of the rows. By default, the
    rows have the same weights in all coordinates, as in the paper. If coordinates are split across
    ranks, every rank holds a copy of all rows' values in the current block."""

    @abstractmethod
    def weigh(self, distances_MM: Tensor, f: int, dim: int) -> Weighting:
        """Weights for rows of `dim` numbers, from squared distances; at most f rows are hostile."""

    def threshold(self, distances_MM: Tensor, f: int) -> float:
        """The limit ξ on the variance of these rows."""
        if self.xi is not None:
            return self.xi
        return 2 * spectral.honest_variance(distances_MM, len(distances_MM) - f)

    def apply(self, rows: Rows, state: State, context: Context) -> tuple[Tensor, State, Report]:
        f = self.tolerated(rows)
        self.require(rows, 2 * f + 1, "n >= 2f + 1")
        if self.block_size is not None and self.block_size < rows.whole_dim:
            return self._blockwise(rows, f, self.block_size), state, Report(self.name, rows.ids)
        solution = self.weigh(linalg.squared_distances(rows), f, rows.whole_dim)
        report = Report(
            self.name,
            rows.ids,
            {"weight": solution.weights_M},
            {"iterations": solution.iterations, "converged": int(solution.converged)},
        )
        return rows.combine(solution.weights_M), state, report

    def _blockwise(self, rows: Rows, f: int, size: int) -> Tensor:
        place = rows.place
        out_D = torch.empty(rows.dim, dtype=rows.block_ND.dtype, device=rows.device)
        for start in range(0, rows.whole_dim, size):
            stop = min(start + size, rows.whole_dim)
            # A block can be split across ranks. Every rank then gets a copy of the whole block, and
            # computes the rows' weights for this block.
            shared = place.group is not None
            part = rows.columns(torch.arange(start, stop) if shared else slice(start, stop))
            solution = self.weigh(linalg.squared_distances(part), f, part.dim)
            first, end = max(start, place.start), min(stop, place.stop)
            if first < end:
                # A rank that holds some coordinates of the block computes the weighted sum of the
                # rows for the whole block. The rank then keeps only its own coordinates. The result
                # thus has the same bits on any number of ranks.
                made_C = part.combine(solution.weights_M)
                out_D[first - place.start : end - place.start] = made_C[first - start : end - start]
        return out_D
