"""Groups of clients that each specialize in some classes, as in FedCAP's EMNIST experiment."""

import torch
from pydantic import Field
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.data.partitions import Partition, partitions, shuffled


@partitions.register("dominant_groups")
class DominantGroups(Partition):
    """A client's samples: a share `dominant` from its group's classes, the rest from all classes.

    With K clients and G groups, client k is in group ⌊k·G/K⌋. In the FedCAP paper, the groups of
    EMNIST are digits, upper-case letters and lower-case letters. The paper specifies neither the
    group sizes nor the number of samples per client. In Rampart, group sizes differ by at most one
    client, and each client has `samples` samples.
    """

    paper = "FedCAP, section VI-A1: EMNIST, 80% of the samples from dominant classes, 20% from all"
    groups: list[list[int]] = Field(
        default=[list(range(10)), list(range(10, 36)), list(range(36, 62))], min_length=1
    )
    """Classes of each group."""
    dominant: float = Field(default=0.8, ge=0, le=1)
    samples: int = Field(default=300, ge=2)
    """Number of samples per client."""

    def split(
        self, y: Tensor, clients: int, draws: torch.Generator, groups: Tensor | None = None
    ) -> list[Tensor]:
        free = torch.ones(len(y), dtype=torch.bool)
        special = round(self.dominant * self.samples)
        parts = []
        for client in range(clients):
            classes = torch.tensor(self.groups[client * len(self.groups) // clients])
            among = free & torch.isin(y, classes)
            own = self._take(among, "of its group's classes", special, client, draws)
            free[own] = False
            rest = self._take(free, "of any class", self.samples - special, client, draws)
            free[rest] = False
            parts.append(torch.cat([own, rest]).sort().values)
        return parts

    def _take(
        self, among: Tensor, kind: str, count: int, client: int, draws: torch.Generator
    ) -> Tensor:
        pool = among.nonzero().flatten()
        if len(pool) < count:
            raise ConfigurationError(
                f"client {client} needs {count} samples {kind}, but only {len(pool)} are left"
            )
        return shuffled(pool, draws)[:count]
