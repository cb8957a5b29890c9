"""The contract of all partitions: seeded, disjoint and sorted parts, and clear errors."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment.schema import Data
from rampart_fl.shared.learning.data import client_data as learning_data
from rampart_fl.shared.learning.data.client_data import client_data, partition_data
from rampart_fl.shared.learning.data.datasets import Samples
from rampart_fl.shared.learning.data.partitions import partitions

PARAMETERS: dict[str, dict[str, Any]] = {
    "dominant_groups": {"groups": [[0, 1, 2], [3, 4], [5, 6, 7]], "samples": 20},
}
CLIENTS = 6


@pytest.fixture(params=partitions.names())
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def labels() -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(9)
    return torch.randint(8, (800,), generator=draws), torch.randint(12, (800,), generator=draws)


def split(name: str, seed: int = 1) -> list[Tensor]:
    y, groups = labels()
    member = partitions.build(name, **PARAMETERS.get(name, {}))
    return member.split(y, CLIENTS, torch.Generator().manual_seed(seed), groups)


def test_clients_hold_distinct_sorted_positions(name: str) -> None:
    parts = split(name)
    together = torch.cat(parts)
    assert len(parts) == CLIENTS
    assert together.dtype == torch.long
    assert len(together.unique()) == len(together)
    assert int(together.min()) >= 0
    assert int(together.max()) < 800
    for part in parts:
        assert len(part) > 1
        assert torch.equal(part, part.sort().values)


def test_seed_determines_the_partition(name: str) -> None:
    first, again, other = ([p.tolist() for p in split(name, seed)] for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_partition_does_not_modify_its_inputs(name: str) -> None:
    y, groups = labels()
    member = partitions.build(name, **PARAMETERS.get(name, {}))
    member.split(y, CLIENTS, torch.Generator().manual_seed(1), groups)
    assert torch.equal(y, labels()[0])
    assert torch.equal(groups, labels()[1])


def test_partition_among_more_clients_than_samples_is_refused(name: str) -> None:
    member = partitions.build(name, **PARAMETERS.get(name, {}))
    y = torch.arange(8).repeat(2)
    with pytest.raises(ConfigurationError, match=r"not enough|its 25 clients need|are left"):
        member.split(y, 100, torch.Generator().manual_seed(1), torch.zeros(16, dtype=torch.long))


SPREAD = [
    *({"name": name, "imbalance": 100} for name in ("iid", "classes_per_client")),
    {"name": "iid", "imbalance": 100, "large": 0.25},
]
"""Partitions whose clients can differ in size."""


@settings(max_examples=60)
@given(
    partition=st.sampled_from([*({"name": name} for name in partitions.names()), *SPREAD]),
    n=st.integers(300, 700),
    clients=st.integers(1, 8),
    seed=st.integers(0, 1000),
    cap=st.none() | st.integers(2, 60),
    reserved=st.integers(0, 40),
    test_fraction=st.sampled_from([0.1, 0.25, 0.5]),
)
def test_clients_share_no_sample_and_respect_cap_and_reserve(
    partition: dict[str, Any],
    n: int,
    clients: int,
    seed: int,
    cap: int | None,
    reserved: int,
    test_fraction: float,
) -> None:
    draws = torch.Generator().manual_seed(seed)
    y, groups = (torch.randint(k, (n,), generator=draws) for k in (8, 12))
    y[:8] = torch.arange(8)
    # The value of each sample is its index, so that the test can find where it went.
    samples = Samples(torch.arange(n, dtype=torch.float32)[:, None], y, 8, groups)
    table = Data(
        dataset="digits",
        partition={**partition, **PARAMETERS.get(partition["name"], {})},
        clients=clients,
        samples=cap,
        reserved=reserved,
        test_fraction=test_fraction,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learning_data, "_samples", lambda dataset: samples)
        learning_data._partition.cache_clear()
        everyone = [client_data(table, slot, seed) for slot in range(clients)]
        _, parts = partition_data(table, seed)
    learning_data._partition.cache_clear()
    seen = torch.cat([torch.cat([own.x_train, own.x_test]) for own in everyone]).flatten().long()
    assert len(seen) == len(seen.unique())
    assert len(seen) <= n - reserved
    for own, part in zip(everyone, parts, strict=True):
        size = len(own.y_train) + len(own.y_test)
        assert size == len(part) <= (cap or n)
        assert len(own.y_train) > 0
        assert len(own.y_test) == min(max(round(size * test_fraction), 1), size - 1)
        for x, labels_ in ((own.x_train, own.y_train), (own.x_test, own.y_test)):
            assert torch.equal(y[x.flatten().long()], labels_)
