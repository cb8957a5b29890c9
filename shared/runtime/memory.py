"""Memory that a process no longer uses, but has not returned to the operating system."""

import ctypes
import gc

_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""The C library's function that returns free memory; None if the library has none."""


def release_unused_memory() -> None:
    """Returns the memory that the process no longer uses to the operating system.

    Objects that refer to each other stay until Python looks for such cycles, which a service seldom
    does among older objects. The C library keeps freed memory, whose amount depends on the order in
    which blocks were freed. So a process seems to grow, although it uses no more objects than
    before. A C library without `malloc_trim`, such as macOS's, decides by itself when it returns
    memory.
    """
    gc.collect()
    if _trim is not None:
        _trim(0)
