"""The places of the clients in a group: clients with more steps come first, finished clients leave.

The last bits of a matrix product depend on where its first factor lies relative to 16 bytes, hence
on the place of a model in the tensor of all models. Clients therefore change places, and leave, in
such a way that no result changes: by multiples of `unit`.

Legend: K clients of a group, D parameters.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import gcd

ALIGNED = 4
"""How many numbers in float32 fill 16 bytes."""
FEWEST = 2
"""A group with several clients never shrinks below this; one model takes other matrix kernels."""


def unit(dim: int) -> int:
    """The smallest distance of two places at which models with D parameters are aligned alike.

    >>> unit(8), unit(6), unit(7)
    (1, 2, 4)
    """
    return ALIGNED // gcd(dim, ALIGNED)


def order(steps_K: Sequence[int], apart: int) -> list[int]:
    """The client at each place: more steps first, each client a multiple of `apart` places away.

    >>> order([1, 5, 3, 9], apart=1), order([1, 5, 3, 9], apart=2)
    ([3, 1, 2, 0], [2, 3, 0, 1])
    """
    placed = list(range(len(steps_K)))
    for first in range(min(apart, len(placed))):
        placed[first::apart] = sorted(placed[first::apart], key=lambda k: -steps_K[k])
    return placed


def stretches(steps_K: Sequence[int], apart: int) -> list[tuple[int, range]]:
    """Splits a round's steps: how many clients, from the first, take part in which steps.

    A number of clients and the number of all clients differ by a multiple of `apart`.

    >>> stretches([9, 5, 3, 1], apart=1)
    [(4, range(0, 1)), (3, range(1, 3)), (2, range(3, 9))]
    """
    counts = list(range(len(steps_K), min(FEWEST, len(steps_K)) - 1, -apart))
    ends = [max(steps_K[count:], default=0) for count in [*counts[1:], 0]]
    taken = zip(counts, pairwise([0, *ends]), strict=True)
    return [(count, range(first, end)) for count, (first, end) in taken if first < end]
