"""How many threads torch computes with."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from rampart_fl.shared.runtime import cpus

SMALL = 1 << 24
"""Parameters times samples of a training step below which more threads save next to nothing."""


def wanted(parameters: int, samples: int) -> int:
    """Threads for training: one where steps are small, one for each processor elsewhere.

    Never more than torch has been given, by `OMP_NUM_THREADS` for instance.

    Args:
        parameters: of the model.
        samples: of one step, over all clients that train at once.

    >>> wanted(parameters=38_282, samples=200)
    1
    """
    if parameters * samples < SMALL:
        return 1
    return min(cpus.threads(), torch.get_num_threads())


@contextmanager
def use(threads: int) -> Iterator[None]:
    """Computes with so many threads within the context."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
