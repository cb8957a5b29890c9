"""Blocks of rows: the memory limit holds for all blocks of a storage together.

Legend: D coordinates.
"""

import gc
from pathlib import Path

import pytest
import torch

from rampart_fl.shared.errors import Unavailable
from rampart_fl.shared.runtime.disk_block import Block, BlockStorage

CPU = torch.device("cpu")
LIKE_D = torch.empty(5)
ROW = 4 * 5


def test_limit_holds_for_the_sum_of_all_blocks_in_memory(tmp_path: Path) -> None:
    storage = BlockStorage(6 * ROW, tmp_path)
    blocks = [storage.zeros(rows, LIKE_D) for rows in (4, 3, 2, 1)]
    assert [block.file is None for block in blocks] == [True, False, True, False]
    assert storage.held == 6 * ROW
    for block in blocks:
        assert not block.tensor.any()
        block.tensor.fill_(7)
        assert block.tensor.sum() == 7 * block.tensor.numel()


def test_another_storage_has_its_own_limit(tmp_path: Path) -> None:
    one, other = BlockStorage(ROW, tmp_path), BlockStorage(ROW, tmp_path)
    held = [storage.zeros(1, LIKE_D) for storage in (one, other)]
    assert all(block.file is None for block in held)


@pytest.mark.parametrize("part", ["tensor", "view", "numpy", "block"])
def test_block_counts_until_the_last_view_of_its_memory_is_gone(part: str, tmp_path: Path) -> None:
    storage = BlockStorage(2 * ROW, tmp_path)
    block: Block | None = storage.zeros(2, LIKE_D)
    assert block is not None
    kept: object = {
        "tensor": block.tensor,
        "view": block.tensor[1][2:3],
        "numpy": block.tensor[0].numpy(),
        "block": block,
    }[part]
    block = None
    gc.collect()
    assert storage.held == 2 * ROW
    assert storage.zeros(1, LIKE_D).file is not None
    del kept
    assert storage.held == 0
    assert storage.zeros(2, LIKE_D).file is None


@pytest.mark.parametrize("held", [0, 1, 3])
@pytest.mark.parametrize("spare", [0, 2])
def test_predicted_number_of_files_is_what_new_blocks_use(
    held: int, spare: int, tmp_path: Path
) -> None:
    storage = BlockStorage(6 * ROW, tmp_path)
    kept, freed = storage.zeros(held, LIKE_D), storage.zeros(spare, LIKE_D)
    predicted = [storage.filed(n, 2, ROW, CPU, freed.bytes) for n in (1, 2, 3, 4)]
    del freed
    made, filed = list[Block](), list[int]()
    for _ in range(4):
        made.append(storage.zeros(2, LIKE_D))
        filed.append(sum(block.file is not None for block in made))
    assert predicted == filed and filed[-1] > 0
    assert len(kept) == held


def test_storage_without_a_limit_keeps_every_block_in_memory() -> None:
    storage = BlockStorage()
    assert storage.zeros(1000, LIKE_D).file is None
    assert storage.filed(3, 1000, ROW, CPU) == 0


def test_blocks_on_other_devices_are_never_in_files_and_do_not_count() -> None:
    storage, device = BlockStorage(0), torch.device("meta")
    assert not storage.maps(1, ROW, device)
    block = storage.zeros(1, LIKE_D.to(device))
    assert block.file is None and block.tensor.device == device and storage.held == 0


def test_blocks_without_numbers_are_allowed(tmp_path: Path) -> None:
    storage = BlockStorage(0, tmp_path)
    assert storage.zeros(0, LIKE_D).tensor.shape == (0, 5)
    assert storage.zeros(3, torch.empty(0)).tensor.shape == (3, 0)


def test_numbers_of_other_dtypes_stay_in_memory(tmp_path: Path) -> None:
    storage = BlockStorage(ROW, tmp_path)
    block = storage.zeros(2, LIKE_D.double())
    assert block.file is None and block.tensor.dtype == torch.float64
    assert storage.held == 4 * ROW


def test_block_that_exceeds_the_address_space_is_refused() -> None:
    with pytest.raises(Unavailable, match="bytes of memory"):
        BlockStorage(1 << 62).zeros(1 << 40, torch.empty(1 << 18, device="cpu"))
