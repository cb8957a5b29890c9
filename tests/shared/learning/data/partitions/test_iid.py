"""IID partitions: every sample is used, and sizes are even or imbalanced as configured."""

import pytest
import torch

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.data.partitions import partitions


def test_every_sample_goes_to_one_client_and_sizes_differ_by_one() -> None:
    parts = partitions.build("iid").split(torch.zeros(103), 10, torch.Generator().manual_seed(1))
    assert torch.cat(parts).sort().values.tolist() == list(range(103))
    assert sorted(len(part) for part in parts) == [10] * 7 + [11] * 3


def test_too_few_samples_are_rejected() -> None:
    with pytest.raises(ConfigurationError, match="3 samples are not enough for 4 clients"):
        partitions.build("iid").split(torch.zeros(3), 4, torch.Generator())


def test_imbalance_is_the_ratio_of_the_largest_to_the_smallest_size() -> None:
    member = partitions.build("iid", imbalance=100)
    parts = member.split(torch.zeros(5000), 20, torch.Generator().manual_seed(1))
    assert torch.cat(parts).sort().values.tolist() == list(range(5000))
    sizes = sorted(len(part) for part in parts)
    assert 80 < sizes[-1] / sizes[0] < 120
    assert [len(part) for part in parts] != sizes, "in random order"


def test_every_client_of_a_small_data_set_has_a_sample() -> None:
    member = partitions.build("iid", imbalance=1000)
    parts = member.split(torch.zeros(12), 10, torch.Generator().manual_seed(1))
    assert min(len(part) for part in parts) == 1


def test_large_clients_have_imbalance_times_as_many_samples() -> None:
    member = partitions.build("iid", imbalance=50, large=0.25)
    parts = member.split(torch.zeros(2120), 8, torch.Generator().manual_seed(1))
    assert torch.cat(parts).sort().values.tolist() == list(range(2120))
    sizes = [len(part) for part in parts]
    assert sorted(sizes) == pytest.approx([20] * 6 + [1000] * 2, abs=4)
    assert sizes != sorted(sizes), "in random order"
    lone = member.split(torch.zeros(5), 1, torch.Generator().manual_seed(1))
    assert [len(part) for part in lone] == [5]
