"""Label skew: an exact number of classes per client, and classes shared evenly."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.data.partitions import partitions


@given(
    labels=st.integers(2, 12),
    classes=st.integers(1, 12),
    clients=st.integers(1, 30),
    seed=st.integers(0, 100),
)
def test_every_client_has_the_exact_number_of_classes_shared_evenly(
    labels: int, classes: int, clients: int, seed: int
) -> None:
    classes = min(classes, labels)
    y = torch.arange(labels).repeat_interleave(60)
    member = partitions.build("classes_per_client", classes=classes)
    parts = member.split(y, clients, torch.Generator().manual_seed(seed))
    assert all(len(y[part].unique()) == classes for part in parts)
    used = torch.cat(parts)
    assert len(used) == len(used.unique())
    holders = torch.stack([y[part].unique() for part in parts]).flatten().bincount(minlength=labels)
    assert holders.max() - holders.min() <= 1
    assert len(used) == 60 * int((holders > 0).sum())


def test_draws_differ_by_seed() -> None:
    y = torch.arange(10).repeat_interleave(20)
    member = partitions.build("classes_per_client")
    first, again, other = (
        [part.tolist() for part in member.split(y, 5, torch.Generator().manual_seed(seed))]
        for seed in (1, 1, 2)
    )
    assert first == again != other


def test_imbalanced_clients_keep_their_number_of_classes() -> None:
    y = torch.arange(10).repeat_interleave(600)
    member = partitions.build("classes_per_client", classes=2, imbalance=100)
    parts = member.split(y, 50, torch.Generator().manual_seed(1))
    assert all(len(y[part].unique()) == 2 for part in parts)
    assert torch.cat(parts).sort().values.tolist() == list(range(6000))
    sizes = [len(part) for part in parts]
    assert max(sizes) > 50 * min(sizes)


def test_too_many_classes_or_too_few_samples_are_rejected() -> None:
    y, draws = torch.tensor([0, 1, 1, 1]), torch.Generator()
    with pytest.raises(ConfigurationError, match="needs 3 classes, but the data has only 2"):
        partitions.build("classes_per_client", classes=3).split(y, 2, draws)
    with pytest.raises(ConfigurationError, match="class 0 has only 1 samples; its 3 clients"):
        partitions.build("classes_per_client", classes=2).split(y, 3, draws)
