"""Independent and identically distributed clients."""

import torch
from torch import Tensor

from shared.learning.partitions import Partition, deck, partitions


@partitions.register("iid")
class IID(Partition):
    """Every sample goes to a client drawn uniformly; sizes differ by one at most.

    >>> parts = IID().split(torch.zeros(5), 2, torch.Generator().manual_seed(0))
    >>> [len(part) for part in parts], sorted(torch.cat(parts).tolist())
    ([3, 2], [0, 1, 2, 3, 4])
    """

    def split(
        self, y: Tensor, clients: int, draws: torch.Generator, groups: Tensor | None = None
    ) -> list[Tensor]:
        order = deck(len(y), clients, draws)
        return [part.sort().values for part in order.tensor_split(clients)]
