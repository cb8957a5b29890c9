"""The processors that this process may use, within the limits of its container."""

import os
from pathlib import Path

LIMITS = Path("/sys/fs/cgroup")
"""Folder with the files that hold a container's resource limits."""


def available() -> float:
    """Number of processors that this process may use, limited by its container's quota."""
    affine = hasattr(os, "sched_getaffinity")
    cpus = float(len(os.sched_getaffinity(0)) if affine else os.cpu_count() or 1)
    quota = limit("cpu.max")
    if len(quota) == 2 and quota[0].isdigit():
        cpus = min(cpus, int(quota[0]) / int(quota[1]))
    return cpus


def threads() -> int:
    """Number of threads that can compute in parallel: one per whole processor, at least one."""
    return max(1, int(available()))


def limit(name: str) -> list[str]:
    """The values in the file `name`, which holds one of the container's resource limits.

    The list is empty if the file does not exist.
    """
    path = LIMITS / name
    return path.read_text(encoding="utf-8").split() if path.exists() else []
