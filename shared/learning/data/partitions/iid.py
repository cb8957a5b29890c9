"""Independent and identically distributed clients."""

import torch
from pydantic import Field
from torch import Tensor

from rampart_fl.shared.learning.data.partitions import (
    Partition,
    partitions,
    relative_sizes,
    shuffled_positions,
    split_at,
    two_sizes,
)


@partitions.register("iid")
class IID(Partition):
    """Divides the samples at random; the clients' sample counts differ by at most one.

    With `imbalance`, the sample counts approximately form a geometric progression. If `large` is
    also set, there are two groups of clients instead. Within each group, the sample counts differ
    by at most one. Every client has at least one sample.

    >>> parts = IID().split(torch.zeros(5), 2, torch.Generator().manual_seed(0))
    >>> [len(part) for part in parts], sorted(torch.cat(parts).tolist())
    ([3, 2], [0, 1, 2, 3, 4])
    """

    imbalance: float = Field(default=1.0, ge=1)
    """Approximate ratio between the largest and the smallest sample count."""
    large: float | None = Field(default=None, gt=0, lt=1)
    """Share of large clients. A large client has about `imbalance` times as many samples as a small
    client."""

    def split(
        self, y: Tensor, clients: int, draws: torch.Generator, groups: Tensor | None = None
    ) -> list[Tensor]:
        order = shuffled_positions(len(y), clients, draws)
        if self.large is None:
            size_K = relative_sizes(clients, self.imbalance, draws)
        else:
            size_K = two_sizes(clients, self.imbalance, self.large, draws)
        return [part.sort().values for part in split_at(order, clients, size_K)]
