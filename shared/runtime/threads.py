"""Chooses and sets the number of threads that torch uses."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from rampart_fl.shared.runtime import cpus

SMALL = 1 << 24
"""If the product of parameters and samples per step is below this number, additional threads hardly
make training faster."""


def training_threads(parameters: int, samples: int) -> int:
    """Number of threads for training: one if steps are small, otherwise one per processor.

    The number never exceeds torch's current setting, which `OMP_NUM_THREADS` may limit.

    Args:
        parameters: number of parameters of the model.
        samples: number of samples in one step, over all clients that train at once.

    >>> training_threads(parameters=38_282, samples=200)
    1
    """
    if parameters * samples < SMALL:
        return 1
    return min(cpus.threads(), torch.get_num_threads())


@contextmanager
def use(threads: int) -> Iterator[None]:
    """Within the context, torch uses this number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
