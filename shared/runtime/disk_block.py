"""Blocks of rows: in memory, or in a file if the blocks together would exceed the memory limit.

A block in a file is mapped into memory, so it is an ordinary tensor. Code that reads a whole block
reads it part by part. It prefetches the next part, and releases the part that it has read.

Legend: N rows, D coordinates.
"""

import ctypes
import mmap
import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from weakref import WeakSet

import torch
from torch import Tensor

from rampart_fl.shared.errors import Unavailable

PAGE = mmap.PAGESIZE
POPULATE_READ = 22
"""The `madvise` advice to read pages from the file and map them; supported since Linux 5.14."""
RELEASE = mmap.MADV_DONTNEED
"""The `madvise` advice to unmap pages, whose contents stay in the file."""
WHOLE = slice(None)
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
            raise Unavailable(
                f"cannot reserve {size:,} bytes on disk for rows: {error.strerror}"
            ) from error
        self.folder = folder
        self.tensor = torch.frombuffer(mapped, dtype=torch.float32).view(rows, dim)
        self._begin = self.tensor.data_ptr()
        self._end = self._begin + size
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="fetch")

    def fetch(self, parts: Sequence[Tensor]) -> Future[None]:
        """Prefetches contiguous parts of the block in the background."""
        return self._reader.submit(self._advise, list(parts), POPULATE_READ)

    def release(self, parts: Sequence[Tensor]) -> None:
        """Frees the memory of contiguous parts of the block; the next access reads a part again."""
        self._advise(parts, RELEASE)

    def _advise(self, parts: Sequence[Tensor], advice: int) -> None:
        for part in parts:
            begin = part.data_ptr() // PAGE * PAGE
            end = part.data_ptr() + part.numel() * part.element_size()
            if self._begin <= part.data_ptr() and end <= self._end and end > begin:
                # A Linux kernel that does not support this advice returns an error, which does no
                # harm.
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

    def release(self, row: int, part: slice = WHOLE) -> None:
        """Frees a row's memory if the block is in a file; the next access reads the row again.

        Args:
            row: position of the row.
            part: the coordinates whose memory is freed.
        """
        if self.file is not None:
            self.file.release([self.tensor[row, part]])

    def select(self, rows: Sequence[int]) -> "Block":
        """A copy of some rows; the copy is in a file if this block is in a file.

        Raises:
            Unavailable: the disk has no room for the file.
        """
        if self.file is None or not rows:
            return Block(self.tensor[list(rows)])
        file = MappedFile(len(rows), self.tensor.shape[1], self.file.folder)
        copy = Block(file.tensor, file)
        for to, row in enumerate(rows):
            copy.tensor[to] = self.tensor[row]
            copy.release(to)
            self.release(row)
        return copy


@dataclass(frozen=True)
class BlockStorage:
    """Where blocks are kept.

    The memory limit applies to the total size of all blocks that this storage made in memory. A
    block counts towards the limit until the last tensor that shares the block's memory is gone.

    Args:
        memory: largest total size in bytes of the blocks in memory; None if there is no limit. Only
            blocks in the CPU's memory are counted.
        folder: the folder for the files of blocks that exceed the limit; None for the system's
            temporary folder.
    """

    memory: int | None = None
    folder: Path | None = None
    _alive: WeakSet[mmap.mmap] = field(default_factory=WeakSet, init=False, repr=False)
    """The memory of the blocks that count towards the limit. A tensor and all views of the tensor
    keep the tensor's memory alive."""

    @property
    def held(self) -> int:
        """Size in bytes of the blocks that count towards the limit."""
        return sum(map(len, self._alive))

    def maps(self, rows: int, row_bytes: int, device: torch.device, more: int = 0) -> bool:
        """Whether a new block is kept in a file, which is possible only for a block on the CPU.

        Args:
            rows: number of rows of the block.
            row_bytes: size of a row in bytes.
            device: the device of the block.
            more: number of bytes by which `held` will grow before this block is made; negative if
                `held` will shrink.
        """
        if self.memory is None or device.type != "cpu":
            return False
        return self.held + more + rows * row_bytes > self.memory

    def filed(
        self, blocks: int, rows: int, row_bytes: int, device: torch.device, freed: int = 0
    ) -> int:
        """How many of `blocks` new blocks will be in files if they are made one after another.

        Args:
            blocks: number of blocks.
            rows: number of rows of each block.
            row_bytes: size of a row in bytes.
            device: the device of the blocks.
            freed: bytes of blocks in memory that are freed before the first of these blocks is
                made.
        """
        filed = 0
        for made in range(blocks):
            more = (made - filed) * rows * row_bytes - freed
            filed += self.maps(rows, row_bytes, device, more)
        return filed

    def zeros(self, rows: int, like_D: Tensor) -> Block:
        """A block of zeros with this many rows, each with the shape and dtype of `like_D`.

        Raises:
            Unavailable: memory or disk has no room for the block.

        >>> storage = BlockStorage(memory=30)
        >>> first, second = storage.zeros(2, torch.zeros(3)), storage.zeros(2, torch.zeros(3))
        >>> first.file is None, second.file is None, storage.held
        (True, False, 24)
        """
        size = rows * like_D.numel() * like_D.element_size()
        if self.memory is None or like_D.device.type != "cpu" or not size:
            return Block(like_D.new_zeros(rows, len(like_D)))
        if like_D.dtype != torch.float32 or not self.maps(1, size, like_D.device):
            return Block(self._counted(size, like_D.dtype).view(rows, len(like_D)))
        folder = Path(tempfile.gettempdir()) if self.folder is None else self.folder
        file = MappedFile(rows, len(like_D), folder)
        return Block(file.tensor, file)

    def _counted(self, size: int, dtype: torch.dtype) -> Tensor:
        """A flat tensor of zeros, which counts towards the limit as long as its memory is used."""
        # The memory comes from `mmap`, because torch's own allocator does not report when it frees
        # the memory of a tensor.
        try:
            memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise Unavailable(
                f"cannot reserve {size:,} bytes of memory for rows: {error.strerror}"
            ) from error
        self._alive.add(memory)
        return torch.frombuffer(memory, dtype=dtype)
