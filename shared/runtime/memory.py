"""Freed memory that the C library retains for later allocations."""

import ctypes

_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""The C library's function that returns free memory to the system; None if there is none."""


def release_free_memory() -> None:
    """Returns memory that the process has freed to the operating system.

    The C library does not return all freed memory to the system; how much it retains depends on the
    order in which blocks were freed. A process may therefore appear to grow although it holds no
    more objects than before. A C library without `malloc_trim`, such as that of macOS, decides
    itself when to return memory.
    """
    if _trim is not None:
        _trim(0)
