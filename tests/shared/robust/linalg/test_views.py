"""How passes read rows."""

import pytest
import torch

from rampart_fl.shared.robust import Rows
from rampart_fl.shared.robust.linalg import views


def test_pool_rows_are_not_copied() -> None:
    block_ND = torch.arange(12.0).reshape(4, 3)
    rows = Rows.of(block_ND, ids=["d", "b", "a", "c"])
    ((start, stop, held),) = views.pieces(rows)
    assert (start, stop) == (0, 3)
    assert [row_D.data_ptr() for row_D in held] == [block_ND[i].data_ptr() for i in (2, 1, 3, 0)]


def test_mixed_rows_are_yielded_in_chunks_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "MIXED_BYTES", 4 * 3 * 2048)
    mixed = Rows.of(torch.ones(3, 5000)).mixed(torch.eye(3, dtype=torch.float64) * 2)
    pieces = list(views.pieces(mixed))
    assert [stop - start for start, stop, _ in pieces] == [2048, 2048, 904]
    assert all(bool((row_C == 2).all()) for _, _, held in pieces for row_C in held)


def test_non_contiguous_rows_are_yielded_as_contiguous() -> None:
    transposed = Rows.of(torch.arange(6.0).reshape(3, 2).T)
    ((_, _, held),) = views.pieces(transposed)
    assert [row_D.tolist() for row_D in held] == [[0, 2, 4], [1, 3, 5]]
    assert all(row_D.is_contiguous() for row_D in held)


def test_unmixed_returns_the_pool_rows_behind_a_view() -> None:
    rows = Rows.of(torch.eye(3), weights=[1, 2, 3]).keep([2, 0])
    mixed = rows.mixed(torch.ones(1, 2, dtype=torch.float64), ["both"])
    plain = views.unmixed(mixed)
    assert plain.ids == ("0", "1") and plain.mix_MK is None and plain.weights_M is None
    assert [row_D.tolist() for row_D in plain.sources()] == [[0, 0, 1], [1, 0, 0]]
    assert plain.pool_statistics is rows.pool_statistics
