"""The pool: rows relative to one reference, whatever model each client started from.

Legend: D coordinates, N rows, M rows that are filled.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.aggregator.worker.pools import Pool, Vectors
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.protocol.messages import Receipt
from rampart_fl.shared.robust.sketch import sketch

SPEC = ModelSpec.of([("a", (2,)), ("b", (1, 2))])
CPU = torch.device("cpu")


class Shelf:
    """Blobs, and shorthands to put vectors on them."""

    def __init__(self, folder: Path) -> None:
        self.blobs = Blobs(folder)
        self.vectors = Vectors(self.blobs, SPEC, CPU)
        self.reference = self.put([1, 1, 1, 1])

    def put(self, numbers: Sequence[float], dtype: str = "F32") -> str:
        return self.blobs.put(wire.encode(SPEC, np.array(numbers, dtype="f4"), None, dtype))

    def receipt(
        self, client: str, numbers: Sequence[float], started: str | None = None, dtype: str = "F32"
    ) -> Receipt:
        return Receipt(
            round=1,
            kind="update",
            client=client,
            digest=self.put(numbers, dtype),
            started=started or self.reference,
            metrics={"loss_gap": float(len(client))},
        )

    def pool(self, *clients: str, calibrate: bool = True) -> Pool:
        return Pool(self.vectors, self.reference, clients, calibrate)


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def load(pool: Pool, *receipts: Receipt) -> None:
    for receipt in receipts:
        pool.load(receipt)


def row(pool: Pool, client: str) -> list[float]:
    rows = pool.rows(dict.fromkeys(pool.receipts, 1.0))
    index = rows.index_K
    position = rows.ids.index(client)
    slot = position if index is None else int(index[position])
    numbers: list[float] = rows.block_ND[slot].tolist()
    return numbers


@pytest.mark.parametrize("calibrate", [True, False])
def test_traces_are_of_the_raw_upload_and_of_the_model_it_started_from(
    shelf: Shelf, calibrate: bool
) -> None:
    start = shelf.put([2, 0, 5, 1])
    pool = Pool(shelf.vectors, shelf.reference, ["a", "b", "c"], calibrate, traces=64)
    load(pool, shelf.receipt("b", [1, 2, 3, 4], start), shelf.receipt("a", [5, 0, 0, 1]))
    load(pool, shelf.receipt("c", [0, 1, 0, 1], start))
    traces = pool.rows({"a": 1.0, "b": 1.0, "c": 1.0}).traces
    assert traces is not None
    uploads, starts = [[5, 0, 0, 1], [1, 2, 3, 4], [0, 1, 0, 1]], [[1] * 4, [2, 0, 5, 1]]
    for own_K, numbers in zip(traces.upload_MK, uploads, strict=True):
        assert torch.equal(own_K, sketch(torch.tensor(numbers, dtype=torch.float32), 64))
    for own_K, which in zip(traces.start_MK, (0, 1, 1), strict=True):
        assert torch.equal(own_K, sketch(torch.tensor(starts[which], dtype=torch.float32), 64))
    assert torch.equal(pool.reference_D, torch.ones(4))
    assert row(pool, "b") == [2, 1, 7, 4]


def test_a_starting_model_is_read_once_for_its_trace_and_its_row(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row's arithmetic writes over the model, so the next client's row reads it again."""
    start, read = shelf.put([2, 0, 5, 1]), list[str]()
    pool = Pool(shelf.vectors, shelf.reference, ["a", "b"], traces=64)
    through = shelf.vectors.read
    monkeypatch.setattr(
        shelf.vectors, "read", lambda digest, *out: read.append(digest) or through(digest, *out)
    )
    load(pool, shelf.receipt("a", [1, 0, 0, 0], start), shelf.receipt("b", [0, 1, 0, 0], start))
    assert read.count(start) == 2
    assert row(pool, "a") == [2, -1, 4, 0] and row(pool, "b") == [1, 0, 4, 0]


def test_without_a_detector_that_asks_there_are_no_traces(shelf: Shelf) -> None:
    pool = shelf.pool("a")
    load(pool, shelf.receipt("a", [1, 2, 3, 4]))
    assert pool.rows({"a": 1.0}).traces is None


def test_who_started_from_the_reference_has_its_upload_as_row(shelf: Shelf) -> None:
    pool = shelf.pool("a")
    load(pool, shelf.receipt("a", [1, 2, 3, 4]))
    assert row(pool, "a") == [1, 2, 3, 4]


def test_a_row_is_start_less_reference_plus_upload(shelf: Shelf) -> None:
    """FedCAP recovers the model that the client reached and calibrates it to the global one."""
    customized = shelf.put([5, 6, 7, 8])
    pool = shelf.pool("a", "b")
    load(pool, shelf.receipt("a", [0.5, 0, -1, 0], customized), shelf.receipt("b", [1, 1, 1, 1]))
    assert row(pool, "a") == [4.5, 5, 5, 7]
    assert row(pool, "b") == [1, 1, 1, 1]


def test_without_a_step_the_row_is_how_far_the_customized_model_stands(shelf: Shelf) -> None:
    """FedCAP's update of zeros after round 0 is no zero row: the models differ already."""
    customized = shelf.put([5, 6, 7, 8])
    pool = shelf.pool("a")
    load(pool, shelf.receipt("a", [0, 0, 0, 0], customized))
    assert row(pool, "a") == [4, 5, 6, 7]


def test_without_calibration_raw_uploads_stand_beside(shelf: Shelf) -> None:
    pool = shelf.pool("a", calibrate=False)
    load(pool, shelf.receipt("a", [1, 2, 3, 4], shelf.put([5, 6, 7, 8])))
    assert row(pool, "a") == [5, 7, 9, 11]
    judged = pool.judged(pool.rows({"a": 1.0}))
    assert judged is not None
    assert judged.block_ND[0].tolist() == [1, 2, 3, 4]
    assert pool.bytes == 2 * pool.block_ND.nbytes


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_sixteen_bits_are_widened(shelf: Shelf, dtype: str) -> None:
    pool = shelf.pool("a")
    load(pool, shelf.receipt("a", [1, -2, 0.5, 96], dtype=dtype))
    assert row(pool, "a") == [1, -2, 0.5, 96]


def test_rows_are_sorted_by_client_whatever_came_first(shelf: Shelf) -> None:
    pool = shelf.pool("c", "a", "b")
    load(pool, shelf.receipt("c", [3, 3, 3, 3]), shelf.receipt("a", [1, 1, 1, 1]))
    rows = pool.rows({"a": 2.0, "c": 5.0})
    assert rows.ids == ("a", "c")
    assert rows.index_K is not None
    assert rows.weights_M.tolist() == [2.0, 5.0]
    assert rows.metadata["loss_gap"].tolist() == [1.0, 1.0]
    load(pool, shelf.receipt("b", [2, 2, 2, 2]))
    rows = pool.rows(dict.fromkeys("abc", 1.0))
    assert rows.ids == ("a", "b", "c")
    assert rows.index_K is None, "a full pool is used as it lies"
    assert rows.block_ND is pool.block_ND


def test_a_row_that_overflows_is_dropped_by_name(shelf: Shelf) -> None:
    huge = 3e38
    pool = shelf.pool("a", "b")
    overflow = shelf.receipt("a", [huge, 0, 0, 0], shelf.put([huge, 0, 0, 0]))
    load(pool, overflow, shelf.receipt("b", [1, 1, 1, 1]))
    rows = pool.rows({"b": 1.0})
    assert (rows.ids, rows.dropped) == (("b",), ("a",))
    assert pool.block_ND.isfinite().all()
    load(pool, shelf.receipt("a", [1, 0, 0, 0]))
    assert pool.rows({"a": 1.0, "b": 1.0}).dropped == (), "a later update counts again"


def test_a_newcomer_makes_the_block_grow(shelf: Shelf) -> None:
    pool = shelf.pool("m")
    load(pool, shelf.receipt("m", [1, 2, 3, 4]))
    for client in ("z", "b", "a", "k"):
        load(pool, shelf.receipt(client, [ord(client)] * 4))
    assert row(pool, "m") == [1, 2, 3, 4]
    assert pool.rows(dict.fromkeys("abkmz", 1.0)).ids == ("a", "b", "k", "m", "z")
    assert [row(pool, c)[0] for c in "abkz"] == [ord(c) for c in "abkz"]
    assert pool.bytes == pool.block_ND.numel() * 4


def test_others_are_forgotten(shelf: Shelf) -> None:
    pool = shelf.pool("a", "b")
    load(pool, shelf.receipt("a", [1, 1, 1, 1]), shelf.receipt("b", [2, 2, 2, 2]))
    pool.keep(["b", "stranger"])
    assert len(pool) == 1
    assert "a" not in pool
    assert pool.rows({"b": 1.0}).ids == ("b",)


def test_a_block_that_fits_is_used_again(shelf: Shelf) -> None:
    first = shelf.pool("a", "b")
    load(first, shelf.receipt("a", [9, 9, 9, 9]))
    again = Pool(shelf.vectors, shelf.reference, ["c", "d"], True, first.block_ND)
    assert again.block_ND is first.block_ND
    load(again, shelf.receipt("d", [1, 2, 3, 4]))
    assert row(again, "d") == [1, 2, 3, 4]
    assert again.rows({"d": 1.0}).ids == ("d",)
    other = Pool(shelf.vectors, shelf.reference, ["c"], True, first.block_ND)
    assert other.block_ND is not first.block_ND


def test_a_vector_is_read_into_place(shelf: Shelf) -> None:
    out_D = torch.zeros(4)
    assert shelf.vectors.read(shelf.put([1, 2, 3, 4]), out_D) is out_D
    assert out_D.tolist() == [1, 2, 3, 4]
    assert shelf.vectors.dim == 4
    with pytest.raises(FileNotFoundError):
        shelf.vectors.read("0" * 64)
