"""Memory that a process has freed, but that the C library keeps for later allocations."""

import ctypes

_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""The C library's function that returns free memory; None if the library has none."""


def release_free_memory() -> None:
    """Returns the memory that the process has freed to the operating system.

    The C library keeps freed memory, whose amount depends on the order in which blocks were freed.
    So a process seems to grow, although it holds no more objects than before. A C library without
    `malloc_trim`, such as macOS's, decides by itself when it returns memory.
    """
    if _trim is not None:
        _trim(0)
