"""The ranks of a worker: processes started by torchrun, each with a part of all coordinates.

Rank 0 is the worker: it holds the lease, and talks to Redis. All ranks write blobs. Before rank 0
calls a method that computes on vectors, it sends the method's name and arguments to the other
ranks. The other ranks then call the same method on their own coordinates (see follower.py).
"""

import atexit
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import torch
from torch import distributed

from rampart_fl.services.aggregator.settings import processes
from rampart_fl.shared.errors import ConfigurationError, PreconditionError
from rampart_fl.shared.robust import shards
from rampart_fl.shared.robust.shards import Group, Part

PATIENCE = timedelta(minutes=30)
"""Maximum time for which a rank waits for another rank during a computation."""
IDLE = timedelta(days=365)
"""Maximum time for which a rank waits for a call from rank 0.

The exit of rank 0 also ends the wait."""
EXPECTED_ERRORS = (ConfigurationError, PreconditionError)
"""Errors that depend only on the arguments of a call, so all ranks raise the same error."""

P = ParamSpec("P")
Call = tuple[str, tuple[Any, ...], dict[str, Any]]
"""The name of a method, its positional arguments, and its keyword arguments."""
R = TypeVar("R")


class RankFailed(Exception):
    """A rank failed during a computation, so this process has to be restarted."""


@dataclass(frozen=True, eq=False)
class Ranks:
    """The ranks of one worker, from the point of view of this process.

    By default, this process is the only rank.

    Args:
        rank: number of this process.
        size: number of processes.
        group: the process group through which ranks exchange Python values; None if there is only
            one process.
        calls: the process group through which rank 0 sends calls to the other ranks; None if there
            is only one process.
        local: number of this process on its machine.
        sums: the process group through which ranks exchange tensors of the pool; None if there is
            only one process.
        via: the device on which ranks exchange tensors of the pool.
    """

    rank: int = 0
    size: int = 1
    group: Group | None = None
    calls: Group | None = None
    local: int = 0
    sums: Group | None = None
    via: torch.device = shards.CPU

    @staticmethod
    def connect(setting: str = "cpu") -> "Ranks":
        """Connects this process with the other processes started by torchrun.

        Args:
            setting: the device of the worker (`RAMPART_DEVICE`).
        """
        size = processes()
        if size == 1:
            return Ranks()
        if os.environ["LOCAL_WORLD_SIZE"] == str(size) and sys.platform == "linux":
            # Ranks trust each other, so no other machine should be able to connect to a rank.
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
            os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
        distributed.init_process_group("gloo", timeout=PATIENCE)
        # Without this call, gloo's threads may still run after the group was deleted at exit, and
        # abort the process.
        atexit.register(distributed.destroy_process_group)
        world, calls = distributed.group.WORLD, distributed.new_group(timeout=IDLE)
        local, sums, via = int(os.environ["LOCAL_RANK"]), world, shards.CPU
        # nccl requires a GPU for each rank. Without GPUs, `set_up_torch` reports the error.
        if setting == "cuda" and torch.cuda.is_available():
            via = torch.device("cuda", local)
            sums = distributed.new_group(timeout=PATIENCE, backend="nccl")
        return Ranks(distributed.get_rank(), size, world, calls, local, sums, via)

    def part(self, dim: int) -> Part | None:
        """The range of coordinates that this rank holds; None if there is only one process."""
        if self.sums is None:
            return None
        here = shards.columns(dim, self.rank, self.size)
        return Part(dim, here.start, here.stop, self.sums, self.via)

    def most(self, dim: int) -> int:
        """The largest number of coordinates that a rank holds if vectors have `dim` coordinates."""
        parts = [shards.columns(dim, rank, self.size) for rank in range(self.size)]
        return max(len(range(dim)[part]) for part in parts)

    def device(self, setting: str) -> torch.device:
        """The device of this rank; with the setting `cuda`, each rank has its own GPU."""
        own = self.size > 1 and setting == "cuda"
        return torch.device(f"cuda:{self.local}" if own else setting)

    @contextmanager
    def on_all_ranks(self, name: str, /, *arguments: Any, **named: Any) -> Iterator[None]:
        """Makes the other ranks call the method that rank 0 runs in the `with` block.

        Raises:
            RankFailed: the method failed on this rank; other ranks may still be executing it.
        """
        if self.calls is None or self.rank:
            yield
            return
        try:
            _broadcast((name, arguments, named), self.calls)
            yield
        except EXPECTED_ERRORS:
            raise
        except Exception as error:
            raise RankFailed(f"{name} failed on rank 0 of {self.size} ranks: {error}") from error

    def next_call(self) -> Call | None:
        """The next call from rank 0; None if rank 0 has exited."""
        try:
            call: Call = _broadcast(None, self.calls)
        except RuntimeError:  # Rank 0 has ended; torchrun reports the reason.
            return None
        return call

    def broadcast(self, value: R) -> R:
        """Broadcasts rank 0's value to every rank."""
        if self.group is None:
            return value
        received: R = _broadcast(value, self.group)
        return received

    def gather(self, value: R) -> list[R]:
        """Every rank's value, in the order of ranks."""
        if self.group is None:
            return [value]
        values: list[Any] = [None] * self.size
        # As in `_broadcast`, ranks unpickle only what ranks of the same worker have pickled.
        distributed.all_gather_object(values, value, group=self.group)
        return values

    def wait(self) -> None:
        """Waits until every rank has called this method."""
        if self.group is not None:
            distributed.barrier(self.group)


def _broadcast(value: Any, group: Group | None) -> Any:
    # Unpickling runs code. The ranks unpickle only what rank 0 of the same worker has pickled. The
    # manual says that no other machine may reach the ranks' ports.
    held = [value]
    distributed.broadcast_object_list(held, group=group, group_src=0)
    return held[0]


class RankedObject(Protocol):
    """An object that exists on each rank, with that rank's coordinates."""

    ranks: Ranks


S = TypeVar("S", bound=RankedObject)


def on_every_rank(
    method: Callable[Concatenate[S, P], R],
) -> Callable[Concatenate[S, P], R]:
    """Makes a method run on every rank when rank 0 calls it; all arguments must be picklable."""

    @wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self.ranks.on_all_ranks(method.__name__, *args, **kwargs):
            return method(self, *args, **kwargs)

    return call
