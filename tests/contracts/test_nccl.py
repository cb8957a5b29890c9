"""A process group of nccl: ranks exchange tensors of the pool on the GPU, and get the same bits.

nccl needs a GPU for each rank, so these tests run on one rank, and only with `make test-gpu`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import distributed

from rampart_fl.services.aggregator.worker.ranks import Ranks
from rampart_fl.shared.robust import aggregate, shards
from rampart_fl.shared.robust.shards import Group, Part
from tests.contracts import sharded
from tests.other_device import DEVICE

pytestmark = pytest.mark.skipif(DEVICE.type != "cuda", reason="needs a GPU: make test-gpu")


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "GRAIN", sharded.GRAIN)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    store = distributed.FileStore(str(tmp_path / "store"), 1)
    distributed.init_process_group("nccl", store=store, rank=0, world_size=1)
    world = distributed.group.WORLD
    assert world is not None
    yield world
    distributed.destroy_process_group()


@pytest.mark.parametrize("name", ["median", "krum", "geometric_median", "dnc", "bulyan"])
def test_rules_give_the_bits_of_a_single_process(name: str, group: Group) -> None:
    updates_ND = sharded.updates("long").to(DEVICE)
    alone_D = aggregate(updates_ND, name, f=2)
    assert torch.equal(aggregate(updates_ND, name, f=2, group=group), alone_D)


def test_ranks_exchange_sums_and_vectors_on_the_gpu(group: Group) -> None:
    block_ND = sharded.updates("long").to(DEVICE)
    part = Part.of(block_ND.shape[1], group, block_ND.device)
    assert part.via.type == "cuda"
    columns_R = torch.tensor([0, 3, 7])
    assert torch.equal(part.gathered(block_ND, columns_R), block_ND[:, columns_R.to(DEVICE)])
    assert torch.equal(part.whole(block_ND), block_ND.cpu())
    assert part.every(True) and not part.every(False)


def test_part_of_ranks_has_the_group_and_the_device(group: Group) -> None:
    ranks = Ranks(0, 1, group, group, 0, group, torch.device("cuda:0"))
    part = ranks.part(10)
    assert part is not None and part.group is group and part.via == torch.device("cuda:0")
