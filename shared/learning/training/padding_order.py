"""The order of the clients in a group: clients with more steps come first; finished clients leave.

The last bits of a matrix product depend on the memory address of its first factor, modulo 16 bytes.
Therefore, the last bits of a model's result depend on the model's position in the tensor of all
models. Two restrictions keep every result unchanged. Clients move only by multiples of `unit`
places. As long as some clients of the group continue, the number of clients that leave is a
multiple of `unit`.

Legend: K clients of a group, D parameters.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import gcd

ALIGNED = 4
"""Number of float32 values in 16 bytes."""
FEWEST = 2
"""Smallest number of clients to which a group shrinks. A group does not shrink to one client. For a
single model, libraries use other matrix kernels, and the results of these kernels differ in the
last bits."""


def unit(dim: int) -> int:
    """Smallest number of places by which a model of D parameters can move and stay aligned.

    >>> unit(8), unit(6), unit(7)
    (1, 2, 4)
    """
    return ALIGNED // gcd(dim, ALIGNED)


def order(steps_K: Sequence[int], apart: int) -> list[int]:
    """Puts clients with more steps first; returns, for each place, the client at this place.

    If `apart` exceeds 1, the order is approximate: clients move only by multiples of `apart`
    places.

    >>> order([1, 5, 3, 9], apart=1), order([1, 5, 3, 9], apart=2)
    ([3, 1, 2, 0], [2, 3, 0, 1])
    """
    placed = list(range(len(steps_K)))
    for first in range(min(apart, len(placed))):
        placed[first::apart] = sorted(placed[first::apart], key=lambda k: -steps_K[k])
    return placed


def step_ranges(steps_K: Sequence[int], apart: int) -> list[tuple[int, range]]:
    """Splits a round's steps into ranges; within a range, the same clients take every step.

    The clients that take the steps of a range occupy the first places. After each range except the
    last, the number of clients that leave is a multiple of `apart`. After the last range, all
    remaining clients leave.

    >>> step_ranges([9, 5, 3, 1], apart=1)
    [(4, range(0, 1)), (3, range(1, 3)), (2, range(3, 9))]
    """
    counts = list(range(len(steps_K), min(FEWEST, len(steps_K)) - 1, -apart))
    ends = [max(steps_K[count:], default=0) for count in [*counts[1:], 0]]
    taken = zip(counts, pairwise([0, *ends]), strict=True)
    return [(count, range(first, end)) for count, (first, end) in taken if first < end]
