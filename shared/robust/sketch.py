"""Sketches: vectors of a few numbers that keep inner products, so that rows can be remembered.

Legend: D coordinates, K numbers of a sketch, M rows.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from rampart_fl.shared.seeding import generator


@lru_cache(maxsize=4)
def _signs(dim: int, size: int, device: torch.device) -> Tensor:
    """Random signs for `dim` coordinates, one byte each."""
    draws = generator(0, "sketch", dim, size)
    return (torch.randint(0, 2, (dim,), generator=draws, dtype=torch.int8) * 2 - 1).to(device)


def sketch(vector_D: Tensor, size: int) -> Tensor:
    """Random signs, then sums of every `size`-th coordinate: (K,) in float32 on the CPU.

    y_k = sum_j s_{k + jK} x_{k + jK}. Inner products keep their mean, <y, y'> ~ <x, x'>, with a
    deviation of about |x| |x'| / sqrt(K); up to K coordinates they are exact.

    Args:
        vector_D: a vector; never written.
        size: numbers of the sketch, K.

    >>> x = torch.arange(4.0)
    >>> float(sketch(x, 8) @ sketch(2 * x, 8))
    28.0
    """
    signed_D = vector_D * _signs(len(vector_D), size, vector_D.device)
    missing = -len(signed_D) % size
    if missing:
        signed_D = torch.nn.functional.pad(signed_D, (0, missing))
    return signed_D.view(-1, size).sum(0).float().cpu()


@dataclass(frozen=True, eq=False)
class Traces:
    """What a detector remembers rows by.

    Args:
        upload_MK: sketch of every raw upload.
        start_MK: sketch of the model that each client started from.
    """

    upload_MK: Tensor
    start_MK: Tensor

    def keep(self, picks: Tensor) -> "Traces":
        """Those of some rows, in the order given."""
        return Traces(self.upload_MK[picks], self.start_MK[picks])
