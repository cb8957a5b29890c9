"""Sketches: short vectors that preserve inner products, so that rows can be remembered cheaply.

Legend: D coordinates, C coordinates of a part, K numbers of a sketch, M rows.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rampart_fl.shared.robust.shards import Part
from rampart_fl.shared.rounding import ceil_div
from rampart_fl.shared.seeding import generator

AT_ONCE = 1 << 22
"""Largest number of coordinates that are multiplied by their signs at once, to limit memory."""


@lru_cache(maxsize=4)
def _packed(dim: int, size: int, seed: int) -> NDArray[np.uint8]:
    """Random bits, one for each coordinate of a vector, packed eight to a byte."""
    draws = generator(seed, "sketch", dim, size)
    counts = (min(AT_ONCE, dim - first) for first in range(0, dim, AT_ONCE))
    drawn = (torch.randint(0, 2, (count,), generator=draws, dtype=torch.int8) for count in counts)
    return np.concatenate([np.packbits(bits_C.numpy(), bitorder="little") for bits_C in drawn])


def _signs(dim: int, size: int, seed: int, start: int, stop: int) -> Tensor:
    """Random signs (int8) for the coordinates [start, stop) of a vector of length `dim`."""
    packed = _packed(dim, size, seed)[start // 8 : ceil_div(stop, 8)]
    bits_C = np.unpackbits(packed, bitorder="little")[start % 8 :][: stop - start]
    return torch.from_numpy(bits_C).view(torch.int8).mul_(2).sub_(1)


@lru_cache(maxsize=4)
def _kept_signs(
    device: torch.device, dim: int, size: int, seed: int, start: int, stop: int
) -> Tensor:
    """The signs that `_signs` returns, cached on a device, so that they are unpacked only once."""
    return _signs(dim, size, seed, start, stop).to(device)


def sketch(
    vector_D: Tensor,
    size: int,
    seed: int,
    part: Part | None = None,
    within: tuple[int, int] | None = None,
) -> Tensor:
    """Sketch (K,) of a vector: signed sums of every K-th coordinate, in float32 on the CPU.

    The sketch y of a vector x has the numbers y_k = sum_j s_{k + jK} x_{k + jK}, with random signs
    s. Inner products are preserved in expectation: <y, y'> ~ <x, x'>, where y' is the sketch of
    another vector x'. The standard deviation of <y, y'> is about |x| |x'| / sqrt(K). Inner products
    are exact if the vectors have at most K coordinates.

    Args:
        vector_D: a vector; never written to.
        size: K, the size of the sketch.
        seed: the seed of the random signs; only sketches with the same signs can be compared.
        part: which coordinates this rank holds; None if it holds all coordinates.
        within: (start, stop): only the coordinates `vector_D[start:stop]` are sketched; all other
            coordinates are treated as 0.

    >>> x = torch.arange(4.0)
    >>> float(sketch(x, 8, seed=1) @ sketch(2 * x, 8, seed=1))
    28.0
    >>> float(sketch(x, 8, seed=1, within=(2, 4)).norm() ** 2)
    13.0
    """
    place = part or Part(len(vector_D), 0, len(vector_D))
    first, last = within or (0, len(vector_D))
    step, of = max(1, AT_ONCE // size) * size, (place.dim, size, seed)

    def signs(start: int, stop: int) -> Tensor:
        if vector_D.device.type == "cpu" and place.dim > AT_ONCE:
            # Signs of long vectors are not cached: they need a quarter of the vector's memory.
            return _signs(*of, place.start + start, place.start + stop)
        return _kept_signs(vector_D.device, *of, place.start, place.stop)[start:stop]

    sums = (
        (start, _summed(vector_D[start:stop], signs(start, stop), size, place.start + start))
        for begin, end in place.own()
        for piece in range(begin, end, step)
        for start, stop in [(max(piece, first), min(piece + step, end, last))]
        if start < stop
    )
    return place.total(sums, (size,)).float()


def _summed(vector_C: Tensor, signs_C: Tensor, size: int, first: int) -> Tensor:
    """Signed sums (K,) of a range of coordinates that begins at `first` in the whole vector."""
    signed_C, before = vector_C * signs_C, first % size
    after = -(before + len(signed_C)) % size
    if before or after:
        signed_C = torch.nn.functional.pad(signed_C, (before, after))
    return signed_C.view(-1, size).sum(0)


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
        """The traces of some rows, in the order of `picks`."""
        return Traces(self.upload_MK[picks], self.start_MK[picks])
