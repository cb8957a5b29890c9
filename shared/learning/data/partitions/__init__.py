"""Partitions: which samples each client holds.

To add a partition, write a module in this package, and a test file with the name of the module. The
module defines a subclass of `Partition`, decorated with `@partitions.register("name")`.

Code that reads or creates samples belongs in `datasets`.

Legend: n samples, K clients.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.families.registry import FamilyMember, Registry


class Partition(FamilyMember, ABC):
    """Divides samples among clients into disjoint parts that depend on a seed."""

    @abstractmethod
    def split(
        self, y: Tensor, clients: int, draws: torch.Generator, groups: Tensor | None = None
    ) -> list[Tensor]:
        """The positions (int64, sorted) of each client's samples; no sample goes to two clients.

        Args:
            y: class numbers (n,).
            clients: number of clients.
            draws: source of all randomness.
            groups: each sample's natural client (n,), such as a user; only partitions that divide
                by natural clients read `groups`.
        Raises:
            ConfigurationError: the samples cannot be divided in this way; the message says why.
        """

    def divide(
        self, y: Tensor, clients: int, draws: torch.Generator, groups: Tensor | None = None
    ) -> list[Tensor]:
        """Calls `split`, and checks the parts.

        Raises:
            ConfigurationError: the samples cannot be divided in this way, there is not one part for
                each client, or a part does not consist of valid positions. A position is valid if
                it exists and is not listed twice.
        """
        with self.own_errors():
            given: object = self.split(y, clients, draws, groups)
            parts = list(given) if isinstance(given, Iterable) else None
        if parts is None:
            problem: str | None = f"returned {type(given).__name__}, not a list of tensors"
        else:
            problem = _problem(parts, clients, len(y))
        if parts is None or problem is not None:
            raise ConfigurationError(f"partition {self.origin} {problem}")
        return parts


def _problem(parts: list[Any], clients: int, n: int) -> str | None:
    """What is wrong with the parts of n samples; None if the parts are correct."""
    if len(parts) != clients:
        return f"returned {len(parts)} parts for {clients} clients"
    for client, part in enumerate(parts):
        if not isinstance(part, Tensor):
            return f"gave client {client} a {type(part).__name__}, not an int64 tensor of positions"
        if part.dtype != torch.int64 or part.ndim != 1:
            return (
                f"gave client {client} a tensor of {part.dtype} with shape {tuple(part.shape)}, "
                "not an int64 tensor of positions with one dimension"
            )
        for position in part[(part < 0) | (part >= n)][:1].tolist():
            return f"gave client {client} the position {position}, outside 0..{n - 1}"
    times_n = torch.cat(parts).bincount(minlength=n)
    position = int(times_n.argmax())
    if times_n[position] > 1:
        holders = [k for k, part in enumerate(parts) if bool((part == position).any())]
        if len(holders) == 1:
            return f"gave client {holders[0]} the position {position} more than once"
        return f"gave the position {position} to the clients {holders[0]} and {holders[1]}"
    return None


partitions: Registry[Partition] = Registry(
    Partition, "partition", package=__name__, group="rampart_fl.partitions"
)


def shuffled(positions: Tensor, draws: torch.Generator) -> Tensor:
    """The given positions in random order."""
    return positions[torch.randperm(len(positions), generator=draws)]


def shuffled_positions(n: int, clients: int, draws: torch.Generator) -> Tensor:
    """The positions of n samples in random order; n must be at least the number of clients."""
    if clients > n:
        raise ConfigurationError(f"{n} samples are not enough for {clients} clients")
    return shuffled(torch.arange(n), draws)


def relative_sizes(clients: int, imbalance: float, draws: torch.Generator) -> Tensor | None:
    """Relative sizes (K,) in random order, from 1 to `imbalance`; None if all sizes are equal.

    In ascending order, the sizes form a geometric progression.

    >>> relative_sizes(3, 100, torch.Generator().manual_seed(0)).sort().values.tolist()
    [1.0, 10.0, 100.0]
    """
    if imbalance == 1:
        return None
    size_K = imbalance ** torch.linspace(0, 1, clients, dtype=torch.float64)
    return size_K[torch.randperm(clients, generator=draws)]


def two_sizes(clients: int, ratio: float, share: float, draws: torch.Generator) -> Tensor:
    """Relative sizes (K,) in random order: `ratio` for a share of the clients, 1 for the others.

    With two or more clients, at least one client is large and at least one client is small.

    >>> two_sizes(5, 100, 0.2, torch.Generator().manual_seed(0)).sort().values.tolist()
    [1.0, 1.0, 1.0, 1.0, 100.0]
    """
    large = min(max(1, round(share * clients)), clients - 1)
    size_K = torch.ones(clients, dtype=torch.float64)
    size_K[torch.randperm(clients, generator=draws)[:large]] = ratio
    return size_K


def split_at(positions: Tensor, runs: int, size_K: Tensor | None = None) -> tuple[Tensor, ...]:
    """Cuts the positions into non-empty pieces, of equal lengths or in proportion to the sizes.

    >>> [len(run) for run in split_at(torch.arange(10), 3)]
    [4, 3, 3]
    >>> [len(run) for run in split_at(torch.arange(10), 2, torch.tensor([1.0, 3.0]))]
    [3, 7]
    """
    if size_K is None:
        return positions.tensor_split(runs)
    ends_K = (size_K.cumsum(0) / size_K.sum() * (len(positions) - runs)).floor().long()
    return positions.tensor_split(ends_K[:-1] + torch.arange(1, runs))
