"""Natural clients: every client holds all samples of one user, or of several users."""

import torch
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.data.partitions import Partition, partitions, shuffled


@partitions.register("by_group")
class ByGroup(Partition):
    """Each client holds one group (a user's samples), or several if groups outnumber clients.

    >>> groups = torch.tensor([7, 7, 9, 9, 9, 4])
    >>> parts = ByGroup().split(torch.zeros(6), 3, torch.Generator().manual_seed(0), groups)
    >>> sorted(groups[part].unique().item() for part in parts)
    [4, 7, 9]
    """

    paper = "FedCAP, section VI-A1: WISDM divided by user"

    def split(
        self, y: Tensor, clients: int, draws: torch.Generator, groups: Tensor | None = None
    ) -> list[Tensor]:
        if groups is None:
            raise ConfigurationError("by_group needs a data set with natural clients")
        users = shuffled(torch.unique(groups), draws)
        if len(users) < clients:
            raise ConfigurationError(f"{len(users)} users are not enough for {clients} clients")
        return [
            torch.isin(groups, users[client::clients]).nonzero().flatten()
            for client in range(clients)
        ]
