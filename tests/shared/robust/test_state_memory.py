"""Blocks of a stage's state with one row per client."""

import torch

from rampart_fl.shared.robust import Rows, State
from rampart_fl.shared.robust.state_memory import carry_over_rows, positions


def test_known_clients_keep_their_rows_and_new_clients_start_at_zero() -> None:
    held = State({"sum": torch.tensor([[1.0, 2.0], [3.0, 4.0]])}, {"sum": ("b", "d")})
    rows = Rows.of(torch.ones(2, 2), ids=["c", "d"])
    block_HD, at = carry_over_rows(held, "sum", rows, rows.ids)
    assert at == {"b": 0, "c": 1, "d": 2}
    assert block_HD.tolist() == [[1, 2], [0, 0], [3, 4]]
    block_HD.zero_()
    assert held.tensors["sum"].any(), "a new block, not the held one"
    assert positions(at, rows.ids, rows.device).tolist() == [1, 2]


def test_first_round_allocates_one_row_per_client() -> None:
    rows = Rows.of(torch.ones(1, 3).double(), ids=["a"])
    block_HD, at = carry_over_rows(State(), "sum", rows, rows.ids)
    assert block_HD.dtype == torch.float64 and block_HD.shape == (1, 3) and at == {"a": 0}
