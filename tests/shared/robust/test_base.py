"""Rows as views, states by client, and bounds on hostile rows."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rampart_fl.shared.errors import PreconditionError
from rampart_fl.shared.robust import Rows, State, shards, view
from rampart_fl.shared.robust.linalg import finite_and_squared_norms
from rampart_fl.shared.robust.rules.median import Median
from tests.other_device import far, other_device


def dense(rows: Rows, size: int = 3) -> torch.Tensor:
    """The view as a block."""
    return torch.cat([chunk_MC for _, _, chunk_MC in rows.chunks(size)], dim=1)


def test_rows_are_sorted_by_id_with_their_weights_and_metadata() -> None:
    rows = Rows.of(
        torch.tensor([[3.0], [1.0], [2.0]]),
        ids=["c", "a", "b"],
        weights=[30, 10, 20],
        metadata={"loss_gap": [0.3, 0.1, 0.2]},
    )
    assert rows.ids == ("a", "b", "c") and dense(rows).flatten().tolist() == [1, 2, 3]
    assert rows.trusted_weights().tolist() == [10, 20, 30]
    assert rows.metadata["loss_gap"].tolist() == [0.1, 0.2, 0.3]


def test_non_finite_rows_are_dropped_and_listed() -> None:
    block_ND = torch.tensor([[1.0, 2.0], [float("inf"), 0.0], [0.0, float("nan")], [4.0, 5.0]])
    rows = Rows.of(block_ND, ids=["d", "c", "b", "a"], weights=[1, 2, 3, 4])
    assert rows.ids == ("a", "d") and rows.dropped == ("b", "c")
    assert rows.trusted_weights().tolist() == [4, 1]
    assert finite_and_squared_norms(block_ND)[0] == [True, False, False, True]
    assert finite_and_squared_norms(torch.full((1, 4), 3e38))[0] == [True], (
        "a sum that overflows is no reason"
    )


def test_default_ids_keep_rows_in_numerical_order() -> None:
    rows = Rows.of(torch.arange(12.0)[:, None])
    assert rows.ids[0] == "00" and dense(rows).flatten().tolist() == list(range(12))


@pytest.mark.parametrize(
    ("updates", "more", "problem"),
    [
        (torch.ones(2), {}, r"\[N, D\]"),
        (torch.ones(2, 2, dtype=torch.long), {}, "int64"),
        (torch.ones(2, 1), {"ids": ["a", "a"]}, r"got 2 ids \(1 distinct\)"),
        (torch.ones(2, 1), {"ids": ["a"]}, "2 distinct ids"),
        ([torch.ones(1), torch.ones(2)], {}, r"one length, got shapes \[\(1,\), \(2,\)\]"),
        ([], {}, "one length"),
        (torch.ones(2, 1), {"weights": [1, 0]}, "finite and positive"),
        (torch.ones(2, 1), {"weights": [1, float("nan")]}, "finite and positive"),
        (torch.ones(2, 1), {"weights": [1]}, r"weights must have shape \(2,\).*got \(1,\)"),
        (
            torch.ones(2, 1),
            {"metadata": {"gap": [1, 2, 3]}},
            r"gap must have shape \(2,\).*got \(3,\)",
        ),
    ],
)
def test_inconsistent_inputs_are_rejected(updates: torch.Tensor, more: dict, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Rows.of(updates, **more)


@given(st.integers(1, 6), st.integers(1, 8), st.integers(0, 10_000))
def test_nested_views_equal_dense_algebra(n: int, dim: int, seed: int) -> None:
    draws = torch.Generator().manual_seed(seed)
    block_ND = torch.randn(n, dim, generator=draws, dtype=torch.float64)
    picks = torch.randint(n, (n,), generator=draws).unique().tolist()
    by_LM = torch.randn(4, len(picks), generator=draws, dtype=torch.float64)
    at = torch.randperm(dim, generator=draws)[: max(1, dim // 2)]
    rows = Rows.of(block_ND).keep(picks).mixed(by_LM, ids="wxyz").keep([3, 1]).columns(at)
    expected = (by_LM @ block_ND[picks])[[3, 1]][:, at]
    torch.testing.assert_close(dense(rows), expected)
    torch.testing.assert_close(rows.row(1), expected[1])
    coefficients = torch.randn(2, generator=draws, dtype=torch.float64)
    torch.testing.assert_close(rows.combine(coefficients), coefficients @ expected)
    assert rows.ids == ("z", "x") and rows.dim == len(at)


def test_column_slices_share_memory_with_the_block() -> None:
    block_ND = torch.ones(3, 10)
    part = Rows.of(block_ND).columns(slice(2, 5))
    assert part.block_ND.data_ptr() == block_ND[:, 2:].data_ptr() and part.dim == 3


def test_single_row_is_returned_as_a_copy() -> None:
    block_ND = torch.ones(2, 2)
    Rows.of(block_ND).row(0).zero_()
    assert torch.equal(block_ND, torch.ones(2, 2))


def test_mixing_keeps_weights_and_metadata_only_for_an_equal_row_count() -> None:
    rows = Rows.of(
        torch.ones(3, 1), ids=["a", "b", "c"], weights=[1, 2, 3], metadata={"g": [1, 2, 3]}
    )
    same = rows.mixed(torch.eye(3))
    assert same.ids == rows.ids and same.trusted_weights().tolist() == [1, 2, 3]
    fewer = rows.mixed(torch.ones(1, 3), ids=["all"])
    assert fewer.trusted_weights().tolist() == [1] and not fewer.metadata


def test_rows_with_zero_coefficient_are_never_read() -> None:
    block_ND = torch.tensor([[1.0], [float("nan")]])
    rows = Rows(block_ND, ("a", "b"))
    assert float(rows.combine(torch.tensor([2.0, 0.0]))) == 2


def test_state_rows_can_be_read_by_client() -> None:
    state = State({"last": torch.tensor([[1.0], [2.0]])}, {"last": ("a", "b")})
    assert {client: float(row) for client, row in state.by_id("last").items()} == {"a": 1, "b": 2}
    assert state.by_id("other") == {}


def test_dropped_rows_are_deducted_from_f() -> None:
    block_ND = torch.tensor([[1.0], [float("nan")], [float("inf")], [2.0]])
    rows = Rows.of(block_ND)
    assert Median(f=3).tolerated(rows) == 1 and Median(f=1).tolerated(rows) == 0
    with pytest.raises(PreconditionError, match="median needs n > 9: n=2, f=1 after leaving out 2"):
        Median(f=3).require(rows, 10, "n > 9")


def test_chunks_on_another_device_are_whole_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "CHUNK", 8)
    monkeypatch.setattr(view, "WINDOW", 1)
    monkeypatch.setattr(shards, "GRAIN", 32)
    block_ND = torch.arange(80.0).view(2, 40)

    def sizes(block_ND: torch.Tensor) -> list[int]:
        return [stop - start for start, stop, _ in Rows.of(block_ND).chunks()]

    assert sizes(block_ND) == [8, 8, 8, 8, 8]
    with other_device():
        assert sizes(far(block_ND)) == [32, 8]
