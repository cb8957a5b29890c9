"""Sketches: short vectors that preserve inner products, so that rows can be remembered cheaply.

Legend: D coordinates, K numbers of a sketch, M rows.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from rampart_fl.shared.seeding import generator


@lru_cache(maxsize=4)
def _signs(dim: int, size: int, device: torch.device) -> Tensor:
    """Random signs for `dim` coordinates, as int8."""
    draws = generator(0, "sketch", dim, size)
    return (torch.randint(0, 2, (dim,), generator=draws, dtype=torch.int8) * 2 - 1).to(device)


def sketch(vector_D: Tensor, size: int) -> Tensor:
    """Sketch (K,) of a vector, in float32 on the CPU: sums of every K-th coordinate, random signs.

    y_k = sum_j s_{k + jK} x_{k + jK} with random signs s. Inner products are preserved in
    expectation, <y, y'> ~ <x, x'>, with a standard deviation of about |x| |x'| / sqrt(K). Inner
    products are exact if the vectors have at most K coordinates.

    Args:
        vector_D: a vector; never written to.
        size: K, the size of the sketch.

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
    """The sketches by which a detector remembers rows.

    Args:
        upload_MK: sketch of every raw upload.
        start_MK: sketch of the model that each client started from.
    """

    upload_MK: Tensor
    start_MK: Tensor

    def keep(self, picks: Tensor) -> "Traces":
        """The traces of some rows, in the order given."""
        return Traces(self.upload_MK[picks], self.start_MK[picks])
