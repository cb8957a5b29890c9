"""Specialized clients: four fifths of their samples from their own group of classes."""

import torch

from rampart_fl.shared.learning.data.partitions import partitions


def test_clients_hold_mostly_samples_of_their_own_group_of_classes() -> None:
    y = torch.arange(62).repeat(400)
    parts = partitions.build("dominant_groups", samples=100).split(
        y, 9, torch.Generator().manual_seed(1)
    )
    bounds = [(0, 10), (10, 36), (36, 62)]
    for client, part in enumerate(parts):
        low, high = bounds[client // 3]
        own = int(((y[part] >= low) & (y[part] < high)).sum())
        assert len(part) == 100
        assert 80 <= own <= 95
