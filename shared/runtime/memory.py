"""Returns memory to the operating system after the process has stopped using it."""

import ctypes
import gc

_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""The C library's `malloc_trim`, which returns free memory to the system; None if it is missing."""


def release_unused_memory() -> None:
    """Returns the process's unused memory to the operating system.

    Objects that refer to each other in a cycle stay in memory until Python searches for cycles. In
    a service, Python rarely searches older objects for cycles, so this function starts a search.
    The C library retains some of the freed memory. The amount depends on the order in which blocks
    were freed. A C library without `malloc_trim`, such as that of macOS, decides by itself when to
    return memory.
    """
    gc.collect()
    if _trim is not None:
        _trim(0)
