"""A process returns the memory that it no longer uses."""

import ctypes
import gc
import os
import weakref
from pathlib import Path

import pytest

from rampart_fl.shared.runtime.memory import release_unused_memory


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="only glibc has malloc_trim"
)
def test_freed_memory_is_returned_although_a_later_block_is_in_use() -> None:
    blocks = [bytes(2000) for _ in range(40_000)]
    # The last blocks are above the others, so the heap cannot shrink.
    last = [bytes(2000) for _ in range(100)]
    blocks.clear()
    before = resident()
    release_unused_memory()
    assert before - resident() > 40_000 * 2000 / 2
    assert len(last) == 100


@pytest.mark.slow
def test_reference_cycles_of_the_oldest_generation_are_collected() -> None:
    class Node:
        pass

    one, other = Node(), Node()
    one.other, other.other = other, one  # type: ignore[attr-defined]  # a cycle
    gc.collect()  # Now the nodes are among the oldest objects.
    result = weakref.ref(one)
    del one, other
    gc.collect(1)
    assert result() is not None
    release_unused_memory()
    assert result() is None
