"""Pathological label skew: each client holds only a few classes."""

import torch
from pydantic import Field
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.data.partitions import (
    Partition,
    partitions,
    relative_sizes,
    shuffled,
    split_at,
)


@partitions.register("classes_per_client")
class ClassesPerClient(Partition):
    """Each client holds `classes` classes; every class is held by about the same number of clients.

    With K clients, each of the C classes in the data goes to K·`classes`/C clients, rounded down or
    up. The clients get their classes one after another. Each client gets the classes that still
    need the most clients; ties are broken at random. No client gets the same class twice. The
    samples of a class are divided evenly among the clients that hold the class. With `imbalance`,
    the samples are divided in proportion to the clients' relative sizes. The relative sizes of all
    clients form a geometric progression.

    >>> y = torch.arange(4).repeat(6)
    >>> parts = ClassesPerClient(classes=2).split(y, 4, torch.Generator().manual_seed(0))
    >>> [(len(part), len(y[part].unique())) for part in parts]
    [(6, 2), (6, 2), (6, 2), (6, 2)]
    """

    paper = "FedCAP, section VI-A1, and MSDFL: two classes per client"
    classes: int = Field(default=2, ge=1)
    imbalance: float = Field(default=1.0, ge=1)
    """The largest relative size of a client, divided by the smallest relative size."""

    def split(
        self, y: Tensor, clients: int, draws: torch.Generator, groups: Tensor | None = None
    ) -> list[Tensor]:
        labels = torch.unique(y)
        if self.classes > len(labels):
            raise ConfigurationError(
                f"each client needs {self.classes} classes, but the data has only {len(labels)}"
            )
        holders = self._holders(len(labels), clients, draws)
        size_K = relative_sizes(clients, self.imbalance, draws)
        parts: list[list[Tensor]] = [[] for _ in range(clients)]
        for label, held_by in zip(labels, holders, strict=True):
            if not held_by:
                continue
            own = shuffled((y == label).nonzero().flatten(), draws)
            if len(own) < len(held_by):
                raise ConfigurationError(
                    f"class {int(label)} has only {len(own)} samples; its {len(held_by)} clients "
                    "need at least one each"
                )
            sizes = None if size_K is None else size_K[held_by]
            for client, share in zip(held_by, split_at(own, len(held_by), sizes), strict=True):
                parts[client].append(share)
        return [torch.cat(part).sort().values for part in parts]

    def _holders(self, labels: int, clients: int, draws: torch.Generator) -> list[list[int]]:
        places = torch.full((labels,), clients * self.classes // labels)
        extra = clients * self.classes % labels
        places[torch.randperm(labels, generator=draws)[:extra]] += 1
        holders: list[list[int]] = [[] for _ in range(labels)]
        for client in range(clients):
            tie_break = torch.rand(labels, generator=draws)
            for label in (places + tie_break).topk(self.classes).indices.tolist():
                holders[label].append(client)
                places[label] -= 1
        return holders
