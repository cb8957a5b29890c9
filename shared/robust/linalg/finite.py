"""Checks whether rows are finite, either immediately or while later passes read the rows.

Legend: N rows of the pool, K rows that a view reads, D coordinates.
"""

import torch
from torch import Tensor

from rampart_fl.shared.robust.view import View


class NonFiniteRows(Exception):
    """Raised if a pass finds a non-finite number in rows that were assumed to be finite."""


def finite_rows(block_ND: Tensor) -> list[bool]:
    """For each row, whether all its numbers are finite; very large numbers count as finite.

    >>> finite_rows(torch.tensor([[1.0, 2.0], [float("inf"), 0.0]]))
    [True, False]
    """
    if not block_ND.numel():
        return [True] * len(block_ND)
    # A row's minimum and maximum are finite only if all its numbers are finite. Checking every
    # number would need memory for a mask with one flag per number.
    ends = [torch.stack(torch.aminmax(row_D)) for row_D in block_ND]
    finite: list[bool] = torch.stack(ends).isfinite().all(dim=1).tolist()
    return finite


def assumed_finite(rows: View) -> bool:
    """Whether the rows are only assumed to be finite, because no pass has checked them."""
    return rows.pool_statistics.unchecked


def record_pass(rows: View, clean: bool) -> None:
    """Records whether a pass over all coordinates of unmixed rows found only finite numbers.

    Args:
        rows: the rows of the pool that the pass read.
        clean: whether the sums of the pass are finite. If the sums are not finite, the rows
            themselves are checked, because sums of finite numbers can overflow.
    Raises:
        NonFiniteRows: a row is not finite, although all rows were assumed to be finite.
    """
    if not assumed_finite(rows):
        return
    clean = rows.place.every(clean)
    if not clean and not rows.place.every(all(finite_rows(rows.block_ND))):
        raise NonFiniteRows
    if not clean or rows.index_K is None or len(rows.index_K) == len(rows.block_ND):
        rows.pool_statistics.unchecked = False
