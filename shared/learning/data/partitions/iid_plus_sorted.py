"""A mixture of IID and label-sorted samples; more IID samples make clients more similar."""

import torch
from pydantic import Field
from torch import Tensor

from rampart_fl.shared.learning.data.partitions import Partition, partitions, shuffled_positions


@partitions.register("iid_plus_sorted")
class IIDPlusSorted(Partition):
    """Divides a fraction `iid` of the samples at random, and the rest in order of their labels.

    >>> y = torch.arange(10).repeat(10)
    >>> parts = IIDPlusSorted(iid=0.0).split(y, 10, torch.Generator().manual_seed(0))
    >>> [len(y[part].unique()) for part in parts]
    [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
    """

    paper = "Karimireddy et al., SCAFFOLD, 2020, section 7: data of s% similarity"
    iid: float = Field(default=0.2, ge=0, le=1)
    """Share of the samples that is divided at random."""

    def split(
        self, y: Tensor, clients: int, draws: torch.Generator, groups: Tensor | None = None
    ) -> list[Tensor]:
        order = shuffled_positions(len(y), clients, draws)
        mixed = order[: round(self.iid * len(y))]
        rest = order[len(mixed) :]
        rest = rest[y[rest].sort(stable=True).indices]
        # The sizes of the sorted parts differ by at most one, and the sizes of the random parts
        # differ by at most one. The first clients get the larger sorted parts, and the last clients
        # get the larger random parts. The clients' total sample counts therefore also differ by at
        # most one.
        pairs = zip(rest.tensor_split(clients), mixed.tensor_split(clients)[::-1], strict=True)
        return [torch.cat(pair).sort().values for pair in pairs]
