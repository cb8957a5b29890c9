"""Whether rows are finite: where that is assumed, the passes that read the rows anyway find out.

Legend: N rows of the pool, K of them in use, D coordinates.
"""

import torch
from torch import Tensor

from rampart_fl.shared.robust.view import View


class NotFinite(Exception):
    """A pass met a number that is not finite in rows that were assumed to be."""


def finite_rows(block_ND: Tensor) -> list[bool]:
    """Which rows hold only finite numbers, however large those are.

    >>> finite_rows(torch.tensor([[1.0, 2.0], [float("inf"), 0.0]]))
    [True, False]
    """
    if not block_ND.numel():
        return [True] * len(block_ND)
    # The least and the greatest number show any other that is not finite; no mask is made.
    ends = [torch.stack(torch.aminmax(row_D)) for row_D in block_ND]
    finite: list[bool] = torch.stack(ends).isfinite().all(dim=1).tolist()
    return finite


def assumed_finite(rows: View) -> bool:
    """Whether the rows are still only assumed to be finite."""
    return rows.cache.get("finite") is False


def record_pass(rows: View, clean: bool) -> None:
    """Records whether a pass over all coordinates of unmixed rows met only finite numbers.

    Args:
        rows: the rows of the pool that it read.
        clean: whether its sums came out finite. Sums of finite numbers may overflow, so otherwise
            the rows are looked at.
    Raises:
        NotFinite: a row is not finite, though it was assumed to be.
    """
    if not assumed_finite(rows):
        return
    if not clean and not all(finite_rows(rows.block_ND)):
        raise NotFinite
    if not clean or rows.index_K is None or len(rows.index_K) == len(rows.block_ND):
        rows.cache["finite"] = True
