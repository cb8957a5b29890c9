"""Blocks of a stage's state with one row per client."""

from dataclasses import replace
from pathlib import Path

import torch

from rampart_fl.shared.robust import Rows, State
from rampart_fl.shared.robust.state_memory import (
    carry_over_rows,
    positions,
    remembered,
    remembered_rows,
)
from rampart_fl.shared.runtime.disk_block import BlockStorage


def test_known_clients_keep_their_rows_and_new_clients_start_at_zero() -> None:
    held = State({"sum": torch.tensor([[1.0, 2.0], [3.0, 4.0]])}, {"sum": ("b", "d")})
    rows = Rows.of(torch.ones(2, 2), ids=["c", "d"])
    block, at = carry_over_rows(held, "sum", rows, rows.ids)
    assert at == {"b": 0, "c": 1, "d": 2}
    assert block.tensor.tolist() == [[1, 2], [0, 0], [3, 4]]
    block.tensor.zero_()
    assert held.tensors["sum"].any(), "a new block, not the held one"
    assert positions(at, rows.ids, rows.device).tolist() == [1, 2]


def test_first_round_allocates_one_row_per_client() -> None:
    rows = Rows.of(torch.ones(1, 3).double(), ids=["a"])
    block, at = carry_over_rows(State(), "sum", rows, rows.ids)
    assert block.tensor.dtype == torch.float64 and block.tensor.shape == (1, 3) and at == {"a": 0}


def test_rows_that_are_replaced_are_not_copied() -> None:
    held = State({"sum": torch.ones(2, 1)}, {"sum": ("a", "b")})
    rows = Rows.of(torch.ones(1, 1), ids=["b"])
    block, at = carry_over_rows(held, "sum", rows, rows.ids, replaced=["b"])
    assert at == {"a": 0, "b": 1} and block.tensor.tolist() == [[1], [0]]


def test_block_is_in_a_file_if_memory_is_full_and_so_is_the_next_one(tmp_path: Path) -> None:
    storage = BlockStorage(memory=8, folder=tmp_path)
    rows = replace(
        Rows.of(torch.tensor([[1.0], [2.0], [3.0]]), ids=["a", "b", "c"]), storage=storage
    )
    block, at = carry_over_rows(State(), "sum", rows, rows.ids)
    block.tensor.copy_(rows.block_ND)
    assert block.file is not None
    state = remembered("sum", block, at)
    assert (state.ids, state.vectors, state.files) == (
        {"sum": ("a", "b", "c")},
        {"sum"},
        {"sum": block.file},
    )
    following, _ = carry_over_rows(state, "sum", rows.keep([1]), ["b"])
    assert following.tensor.tolist() == [[1], [2], [3]] and following.file is not None
    seen = remembered_rows(state, "sum", rows, ["c", "a"])
    assert (seen.ids, [row.tolist() for row in seen.sources()]) == (("c", "a"), [[3], [1]])
