"""Partitions: which samples each client holds.

To add a partition, write a module in this package, and a test file with the name of the module. The
module defines a subclass of `Partition`, decorated with `@partitions.register("name")`.

Code that reads or creates samples belongs in `datasets`.

Legend: n samples, K clients.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.families.registry import Member, Registry


class Partition(Member, ABC):
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
