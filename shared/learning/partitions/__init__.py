"""Partitions: which samples each client holds.

To add one: a module here with a subclass of `Partition` under `@partitions.register("name")`, and
a test file of the same name.

Legend: n samples.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from shared.errors import ConfigurationError
from shared.registry import Member, Registry


class Partition(Member, ABC):
    """Divides samples among clients: seeded and disjoint."""

    @abstractmethod
    def split(
        self, y: Tensor, clients: int, draws: torch.Generator, groups: Tensor | None = None
    ) -> list[Tensor]:
        """The positions (long, sorted) of each client's samples; no sample goes to two clients.

        Args:
            y: class numbers (n,).
            clients: number of clients.
            draws: source of all randomness.
            groups: natural clients (n,), for the partitions that follow them.
        Raises:
            ConfigurationError: the samples cannot be divided so; says why.
        """


partitions: Registry[Partition] = Registry("partition", __name__)


def shuffled(positions: Tensor, draws: torch.Generator) -> Tensor:
    """The same positions in random order."""
    return positions[torch.randperm(len(positions), generator=draws)]


def deck(n: int, clients: int, draws: torch.Generator) -> Tensor:
    """The positions of n samples in random order, one for each client at least."""
    if clients > n:
        raise ConfigurationError(f"{n} samples do not suffice for {clients} clients")
    return shuffled(torch.arange(n), draws)
