"""Blocks of rows: in memory, or in a file if a block exceeds the memory limit.

A block in a file is mapped into memory, so it is an ordinary tensor. A pass over the block
prefetches the part that it reads next, and releases the part that it has read.

Legend: N rows, D coordinates.
"""

import ctypes
import mmap
import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from rampart_fl.shared.errors import Unavailable

PAGE = mmap.PAGESIZE
POPULATE_READ = 22
"""The `madvise` advice to read pages from the file and map them; supported since Linux 5.14."""
RELEASE = mmap.MADV_DONTNEED
"""The `madvise` advice to unmap pages, whose contents stay in the file."""
_libc = ctypes.CDLL(None, use_errno=True)


class MappedFile:
    """A float32 block (N, D) in an unnamed file, which is deleted together with the block.

    Args:
        rows, dim: the shape of the block.
        folder: the folder whose disk holds the file.
    Raises:
        Unavailable: the disk has no room for the file.
    """

    def __init__(self, rows: int, dim: int, folder: Path) -> None:
        size = rows * dim * 4
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                # Reserve the space now: if the disk filled up later, a write would kill this
                # process.
                os.posix_fallocate(file.fileno(), 0, size)
                mapped = mmap.mmap(file.fileno(), size)
        except OSError as error:
            raise Unavailable(f"a pool of {size:,} bytes on disk: {error.strerror}") from error
        self.tensor = torch.frombuffer(mapped, dtype=torch.float32).view(rows, dim)
        self._begin = self.tensor.data_ptr()
        self._end = self._begin + size
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="fetch")

    def fetch(self, parts: Sequence[Tensor]) -> Future[None]:
        """Prefetches contiguous parts of the block in the background."""
        return self._reader.submit(self._advise, list(parts), POPULATE_READ)

    def release(self, parts: Sequence[Tensor]) -> None:
        """Frees the memory of contiguous parts of the block; a later access reads them again."""
        self._advise(parts, RELEASE)

    def _advise(self, parts: Sequence[Tensor], advice: int) -> None:
        for part in parts:
            begin = part.data_ptr() // PAGE * PAGE
            end = part.data_ptr() + part.numel() * part.element_size()
            if self._begin <= part.data_ptr() and end <= self._end and end > begin:
                # A kernel that does not support the advice returns an error, which does no harm.
                _libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), advice)


@dataclass(frozen=True, eq=False)
class Block:
    """A block (N, D), and the block's file if the block is not in memory."""

    tensor: Tensor
    file: MappedFile | None = None

    def __len__(self) -> int:
        return len(self.tensor)

    @property
    def bytes(self) -> int:
        """Size of the block in bytes."""
        return self.tensor.element_size() * self.tensor.numel()

    def release(self, row: int) -> None:
        """Frees a row's memory if the block is in a file; the next access reads the row again."""
        if self.file is not None:
            self.file.release([self.tensor[row]])


@dataclass(frozen=True)
class BlockStorage:
    """Where blocks are kept.

    Args:
        memory: largest size in bytes of a block in memory; None if there is no limit.
        folder: the folder for larger blocks; None for the system's temporary folder.
    """

    memory: int | None = None
    folder: Path | None = None

    def maps(self, rows: int, row_bytes: int, device: torch.device) -> bool:
        """Whether a block of this many rows is kept in a file; only possible on the CPU."""
        fits = self.memory is None or rows * row_bytes <= self.memory
        return not fits and device.type == "cpu"

    def zeros(self, rows: int, like_D: Tensor) -> Block:
        """A block of zeros with this many rows, each with the shape and dtype of `like_D`.

        >>> BlockStorage(memory=100).zeros(2, torch.zeros(3)).file is None
        True
        >>> BlockStorage(memory=10).zeros(2, torch.zeros(3)).file is None
        False
        """
        row_bytes = like_D.numel() * like_D.element_size()
        if like_D.dtype != torch.float32 or not self.maps(rows, row_bytes, like_D.device):
            return Block(like_D.new_zeros(rows, len(like_D)))
        folder = Path(tempfile.gettempdir()) if self.folder is None else self.folder
        file = MappedFile(rows, len(like_D), folder)
        return Block(file.tensor, file)
