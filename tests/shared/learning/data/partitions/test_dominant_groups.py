"""Specialized clients: four fifths of their samples from their own group of classes."""

import pytest
import torch

from rampart_fl.shared.errors import ConfigurationError
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


@pytest.mark.parametrize(
    ("samples", "dominant", "problem"),
    [
        (50, 1.0, "client 0 needs 50 samples of its group's classes, but only 40 are left"),
        (80, 0.25, "client 1 needs 20 samples of its group's classes, but only 0 are left"),
        (100, 0.25, "client 0 needs 75 samples of any class, but only 55 are left"),
    ],
)
def test_missing_samples_are_reported(samples: int, dominant: float, problem: str) -> None:
    member = partitions.build(
        "dominant_groups", groups=[[0], [1]], samples=samples, dominant=dominant
    )
    with pytest.raises(ConfigurationError, match=problem):
        member.split(torch.arange(2).repeat(40), 2, torch.Generator().manual_seed(1))
