"""Divides a pool's coordinates into a fixed number of shards, which can be split across ranks.

A sum over coordinates is first computed within each shard; then the shards' sums are added in
order. The number of shards is independent of the number of ranks, so sums are bit-for-bit the same
for any number of ranks.

Legend: S shards, D coordinates.
"""

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor, distributed

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.rounding import ceil_div
from rampart_fl.shared.runtime.device import to_device
from rampart_fl.shared.runtime.disk_block import MappedFile

SHARDS = 16
"""Largest number of shards of a pool. If there are more ranks than this number, some ranks get no
coordinates."""
GRAIN = 1 << 16
"""The size of every shard or window, except the last, is a multiple of this number of coordinates.
A shard or window therefore ends where a chunk of the default size ends."""

Group = distributed.ProcessGroup
"""A group of processes that aggregate together.

The group's backend is gloo, or nccl if every process holds its coordinates on a GPU of its own."""
CPU = torch.device("cpu")


def width(dim: int) -> int:
    """The number of coordinates of a shard; the last shard can be shorter.

    >>> width(1000), width(16 * 65_536 + 1)
    (65536, 131072)
    """
    return max(1, ceil_div(dim, SHARDS * GRAIN)) * GRAIN


def bounds(dim: int) -> list[tuple[int, int]]:
    """The range of coordinates of every shard."""
    wide = width(dim)
    return [(start, min(start + wide, dim)) for start in range(0, dim, wide)]


def exchange_device(group: Group, device: torch.device) -> torch.device:
    """The device on which the ranks of a group exchange tensors.

    If the group has nccl for the ranks' device, tensors stay on this device. Otherwise, the ranks
    exchange tensors on the CPU.

    Raises:
        ConfigurationError: the group has no backend for CPU tensors, and no nccl for the device.
    """
    backends = distributed.get_backend_config(group)
    by_device = dict(pair.split(":") for pair in backends.split(","))
    if by_device.get(device.type) == "nccl":
        return device
    if "cpu" in by_device:
        return CPU
    raise ConfigurationError(
        f"the group has the backends {backends}, but the rows are on the device {device.type}: "
        "create the group with gloo or, if each rank has a GPU of its own, with nccl"
    )


def columns(dim: int, rank: int, size: int) -> slice:
    """The coordinates of a rank: whole shards, distributed as evenly as possible.

    >>> columns(100_000, 0, 2), columns(100_000, 1, 2)
    (slice(0, 65536, None), slice(65536, 100000, None))
    """
    shards = bounds(dim)
    first, last = (len(shards) * at // size for at in (rank, rank + 1))
    if first == last:
        end = shards[first][0] if first < len(shards) else dim
        return slice(end, end)
    return slice(shards[first][0], shards[last - 1][1])


@dataclass(frozen=True, eq=False)
class Part:
    """The coordinates that this process holds.

    Args:
        dim: total number D of coordinates of all ranks.
        start: the first coordinate of this rank.
        stop: the index after this rank's last coordinate.
        group: the ranks that together hold all coordinates; None if this process holds all
            coordinates.
        via: the device on which ranks exchange tensors; see `exchange_device`.
    """

    dim: int
    start: int
    stop: int
    group: Group | None = None
    via: torch.device = CPU

    @staticmethod
    def of(held: int, group: Group | None, device: torch.device = CPU) -> "Part":
        """The `Part` of a rank that holds `held` coordinates on a device.

        Raises:
            ConfigurationError: the group has no backend that can exchange tensors (see
                `exchange_device`), or the ranks do not hold the coordinates that `columns` assigns
                to them.
        """
        if group is None:
            return Part(held, 0, held)
        via = exchange_device(group, device)
        size, rank = distributed.get_world_size(group), distributed.get_rank(group)
        held_P = torch.zeros(size, dtype=torch.int64, device=via)
        held_P[rank] = held
        distributed.all_reduce(held_P, group=group)
        dim = int(held_P.sum())
        parts = [columns(dim, other, size) for other in range(size)]
        wanted = [part.stop - part.start for part in parts]
        if held_P.tolist() != wanted:
            raise ConfigurationError(
                f"the {size} ranks hold {held_P.tolist()} of {dim} coordinates, but shards.columns "
                f"assigns {wanted} to them"
            )
        return Part(dim, parts[rank].start, parts[rank].stop, group, via)

    @property
    def here(self) -> slice:
        """This rank's coordinates."""
        return slice(self.start, self.stop)

    def own(self) -> list[tuple[int, int]]:
        """The ranges of this rank's shards, relative to the rank's first coordinate."""
        return [
            (start - self.start, stop - self.start)
            for start, stop in bounds(self.dim)
            if self.start <= start < self.stop
        ]

    def total(self, pieces: Iterable[tuple[int, Tensor]], shape: tuple[int, ...]) -> Tensor:
        """Sum of all ranks' results, one result per piece (range of columns); float64, on the CPU.

        Args:
            pieces: one pair (first coordinate of the piece, result) per piece of this rank, in
                order. The coordinate is relative to the rank's first coordinate. A piece must lie
                within one shard. Pieces with integer results are an exception, because sums of
                integers are exact in any order.
            shape: the shape of the results.
        """
        sums = self._sums(pieces)
        if self.group is None:
            # The host waits for the device only once, at the end.
            total = functools.reduce(torch.add, (sum_ for _, sum_ in sums), torch.zeros(()))
            return total.to("cpu", torch.float64).expand(shape).clone()
        sums_S = torch.zeros(len(bounds(self.dim)), *shape, dtype=torch.float64, device=self.via)
        for shard, sum_ in sums:
            sums_S[shard] = sum_.to(self.via)
        # Each shard is on one rank only; on all other ranks, the sum for this shard is 0. The order
        # in which the ranks' tensors are added therefore has no effect.
        distributed.all_reduce(sums_S, group=self.group)
        total = torch.zeros(shape, dtype=torch.float64)
        for sum_ in sums_S.cpu():
            total += sum_
        return total

    def _sums(self, pieces: Iterable[tuple[int, Tensor]]) -> Iterator[tuple[int, Tensor]]:
        """Pairs of a shard of this rank and the sum over the shard's pieces, in float64."""
        wide = width(self.dim)
        for shard, of_shard in groupby(pieces, lambda piece: (self.start + piece[0]) // wide):
            yield shard, functools.reduce(torch.add, (result.double() for _, result in of_shard))

    def gathered(
        self, block_ND: Tensor, columns_R: Tensor, file: MappedFile | None = None
    ) -> Tensor:
        """A copy (N, R) of some coordinates of all rows, gathered from the ranks that hold them.

        If the block is in a file, at most one of its rows is in memory at once.
        """
        if self.group is None:
            return _selected(block_ND, to_device(columns_R, block_ND.device), file)
        drawn_NR = torch.zeros(len(block_ND), len(columns_R), dtype=block_ND.dtype, device=self.via)
        inside_R = self.inside(columns_R)
        own_R = to_device(columns_R[inside_R] - self.start, block_ND.device)
        drawn_NR[:, to_device(inside_R, self.via)] = _selected(block_ND, own_R, file).to(self.via)
        distributed.all_reduce(drawn_NR, group=self.group)
        return drawn_NR.to(block_ND.device)

    def whole(self, held_D: Tensor) -> Tensor:
        """Concatenates the ranks' coordinates into one tensor (..., D) on the CPU."""
        if self.group is None:
            return held_D
        whole_D = torch.empty(*held_D.shape[:-1], self.dim, dtype=held_D.dtype)
        size = distributed.get_world_size(self.group)
        for rank in range(size):
            here = columns(self.dim, rank, size)
            part_D = whole_D[..., here]
            if here.start == self.start and here.stop == self.stop:
                part_D = held_D.detach()
            part_D = part_D.to(self.via).contiguous()
            distributed.broadcast(part_D, group=self.group, group_src=rank)
            whole_D[..., here] = part_D.cpu()
        return whole_D

    def inside(self, columns_R: Tensor) -> Tensor:
        """Mask (R,): for each given coordinate, whether this rank holds the coordinate."""
        return (columns_R >= self.start) & (columns_R < self.stop)

    def every(self, true: bool) -> bool:
        """Whether a condition is true on every rank."""
        if self.group is None:
            return true
        held = torch.tensor([int(true)], device=self.via)
        distributed.all_reduce(held, distributed.ReduceOp.MIN, group=self.group)
        return bool(held.item())


def _selected(block_ND: Tensor, columns_R: Tensor, file: MappedFile | None) -> Tensor:
    """A copy (N, R) of some coordinates of all rows."""
    if file is None:
        return block_ND.index_select(1, columns_R)
    selected_NR = block_ND.new_empty(len(block_ND), len(columns_R))
    for row_D, selected_R in zip(block_ND, selected_NR, strict=True):
        torch.index_select(row_D, 0, columns_R, out=selected_R)
        file.release([row_D])
    return selected_NR
