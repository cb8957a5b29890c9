"""The machine's resources for training, as a number that does not change between restarts."""

import os
from functools import lru_cache

import torch

from rampart_fl.shared.runtime import cpus

GIB = 2**30
PER_CORE = 2.0
"""GiB of memory that training needs per core."""


def resources(cores: float, memory: float, accelerator: bool) -> float:
    """The smaller of the number of cores and memory / `PER_CORE`; infinite with a GPU.

    Args:
        cores: number of cores that the process may use.
        memory: memory in GiB.
        accelerator: whether there is a GPU.

    >>> resources(cores=8, memory=4, accelerator=False)
    2.0
    """
    return float("inf") if accelerator else min(cores, memory / PER_CORE)


@lru_cache(maxsize=1)
def probe() -> float:
    """The resources of this machine, within the limits of its container."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    limit = cpus.limit("memory.max")
    if limit and limit[0].isdigit():
        memory = min(memory, int(limit[0]) / GIB)
    return resources(cpus.available(), memory, torch.cuda.is_available())
