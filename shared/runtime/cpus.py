"""The processors that this process may use, within what its container allows."""

import os
from pathlib import Path

LIMITS = Path("/sys/fs/cgroup")
"""Folder in which a container's limits are found."""


def available() -> float:
    """How many processors this process may use, within its container's quota, if any."""
    affine = hasattr(os, "sched_getaffinity")
    cpus = float(len(os.sched_getaffinity(0)) if affine else os.cpu_count() or 1)
    quota = limit("cpu.max")
    if len(quota) == 2 and quota[0].isdigit():
        cpus = min(cpus, int(quota[0]) / int(quota[1]))
    return cpus


def threads() -> int:
    """How many threads can compute at the same time: one per whole processor, at least one."""
    return max(1, int(available()))


def limit(name: str) -> list[str]:
    """The values in the file of one of the container's limits; empty if there is no such file."""
    path = LIMITS / name
    return path.read_text().split() if path.exists() else []
