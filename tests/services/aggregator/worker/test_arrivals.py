"""Arrivals: uploads from blobs become rows, whatever model each client started from.

Legend: D coordinates.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.aggregator.state.snapshot import Snapshot
from rampart_fl.services.aggregator.worker.arrivals import Arrivals, ServedDigests
from rampart_fl.services.aggregator.worker.vectors import Vectors
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.protocol.messages import Receipt
from rampart_fl.shared.robust.base import Rows
from rampart_fl.shared.robust.sketch import sketch
from rampart_fl.shared.round.pool import Claim
from rampart_fl.shared.round.rounds import Rounds

SPEC = ModelSpec.of([("a", (2,)), ("b", (1, 2))])
CPU = torch.device("cpu")

SEED = 5
"""A seed of the server that is not the experiment's seed."""


class Shelf:
    """Blobs, and shorthands to store vectors in them."""

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
            samples=1,
        )

    def arrivals(
        self,
        *clients: str,
        customized: Mapping[str, str] | None = None,
        challenged: Mapping[str, str] | None = None,
        origins: Mapping[str, dict[str, str]] | None = None,
        **server: object,
    ) -> Arrivals:
        """Empty rows for these clients under the models of a snapshot."""
        tables = {"name": "arrivals", "data": {"dataset": "digits"}, "model": "cnn"}
        experiment = Experiment.from_tables({**tables, "server": server})
        rounds = Rounds.of(experiment, SPEC, CPU, seed=SEED)
        snapshot = Snapshot(
            global_model=self.reference,
            reference=self.reference,
            customized=dict(customized or {}),
            challenged=dict(challenged or {}),
            origins=dict(origins or {}),
        )
        pool = rounds.pool(self.vectors.read(self.reference), clients)
        return Arrivals(rounds, self.vectors, ServedDigests(snapshot, self.reference), pool)


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def rows(arrivals: Arrivals, *receipts: Receipt) -> Rows:
    """The rows of these uploads."""
    for receipt in receipts:
        arrivals.load(receipt)
    return arrivals.pool.rows({receipt.client: Claim(1, {}) for receipt in receipts}, cap=1)


@pytest.mark.parametrize("calibrate", [True, False])
def test_traces_are_sketches_of_the_raw_upload_and_its_starting_model(
    shelf: Shelf, calibrate: bool
) -> None:
    start = shelf.put([2, 0, 5, 1])
    arrivals = shelf.arrivals("a", "b", "c", detectors=["response"], calibrate=calibrate)
    result = rows(
        arrivals,
        shelf.receipt("b", [1, 2, 3, 4], start),
        shelf.receipt("a", [5, 0, 0, 1]),
        shelf.receipt("c", [0, 1, 0, 1], start),
    )
    assert result.traces is not None
    size = result.traces.upload_MK.shape[1]
    uploads, starts = [[5, 0, 0, 1], [1, 2, 3, 4], [0, 1, 0, 1]], [[1] * 4, [2, 0, 5, 1]]
    for own_K, numbers in zip(result.traces.upload_MK, uploads, strict=True):
        assert torch.equal(own_K, sketch(torch.tensor(numbers, dtype=torch.float32), size, SEED))
    for own_K, which in zip(result.traces.start_MK, (0, 1, 1), strict=True):
        assert torch.equal(
            own_K, sketch(torch.tensor(starts[which], dtype=torch.float32), size, SEED)
        )
    assert torch.equal(arrivals.pool.reference_D, torch.ones(4))
    assert result.row(1).tolist() == [2, 1, 7, 4]


def test_starting_model_is_read_once_per_client_for_trace_and_row(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row's arithmetic writes over the model, so the next client's row reads it again."""
    start, read = shelf.put([2, 0, 5, 1]), list[str]()
    arrivals = shelf.arrivals("a", "b", detectors=["response"])
    through = shelf.vectors.read
    monkeypatch.setattr(
        shelf.vectors, "read", lambda digest, *out: read.append(digest) or through(digest, *out)
    )
    result = rows(
        arrivals, shelf.receipt("a", [1, 0, 0, 0], start), shelf.receipt("b", [0, 1, 0, 0], start)
    )
    assert read.count(start) == 2
    assert result.row(0).tolist() == [2, -1, 4, 0] and result.row(1).tolist() == [1, 0, 4, 0]


def test_upload_is_read_directly_into_its_row_without_a_copy(shelf: Shelf) -> None:
    arrivals = shelf.arrivals("a", "b")
    block_ND = arrivals.pool.block.tensor
    result = rows(arrivals, shelf.receipt("b", [1, 2, 3, 4]), shelf.receipt("a", [5, 6, 7, 8]))
    assert result.block_ND is block_ND and result.index_K is None
    assert block_ND.tolist() == [[5, 6, 7, 8], [1, 2, 3, 4]]


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_sixteen_bit_uploads_are_widened_to_float32(shelf: Shelf, dtype: str) -> None:
    result = rows(shelf.arrivals("a"), shelf.receipt("a", [1, -2, 0.5, 96], dtype=dtype))
    assert result.row(0).tolist() == [1, -2, 0.5, 96]


def test_a_diverged_upload_is_dropped(shelf: Shelf) -> None:
    zeros = shelf.receipt("a", [0, 0, 0, 0]).model_copy(update={"diverged": True})
    result = rows(shelf.arrivals("a", "b"), zeros, shelf.receipt("b", [1, 1, 1, 1]))
    assert (result.ids, result.dropped) == (("b",), ("a",))


def test_challenge_does_not_change_the_calibrated_row(shelf: Shelf) -> None:
    """Two challenged models are equal, but each row is calibrated by its client's own model."""
    own = {"a": shelf.put([2, 2, 2, 2]), "b": shelf.put([3, 3, 3, 3])}
    shifted = shelf.put([9, 9, 9, 9])
    customized = {**own, "challenge:a": shifted, "challenge:b": shifted, "c": shelf.reference}
    arrivals = shelf.arrivals(
        "a",
        "b",
        "c",
        customized=customized,
        challenged={"a": "challenge:a", "b": "challenge:b"},
    )
    result = rows(arrivals, *(shelf.receipt(client, [0, 0, 0, 1], shifted) for client in "abc"))
    assert result.row(0).tolist() == [1, 1, 1, 2]
    assert result.row(1).tolist() == [2, 2, 2, 3]
    assert result.row(2).tolist() == [8, 8, 8, 9], "c was not challenged: it did start there"


def test_challenge_of_an_earlier_round_does_not_change_the_row_either(shelf: Shelf) -> None:
    """Under the buffered policy, an upload may come after the client was challenged again."""
    earlier, own, now = (shelf.put([number] * 4) for number in (9, 2, 7))
    arrivals = shelf.arrivals(
        "a",
        "b",
        customized={"a": shelf.reference, "challenge:a": now},
        challenged={"a": "challenge:a"},
        origins={"a": {earlier: own}},
    )
    receipts = (shelf.receipt(client, [0, 0, 0, 1], earlier) for client in "ab")
    result = rows(arrivals, *receipts)
    assert result.row(0).tolist() == [1, 1, 1, 2]
    assert result.row(1).tolist() == [8, 8, 8, 9], "b was not challenged: it did start there"


def test_rows_of_isolated_groups_are_calibrated_by_the_group_models(shelf: Shelf) -> None:
    group = shelf.put([4, 4, 4, 4])
    arrivals = shelf.arrivals(
        "a",
        "b",
        customized={"a": group, "b": group},
        customizer={"name": "flcert", "groups": 2},
    )
    result = rows(
        arrivals, shelf.receipt("a", [1, 2, 3, 4], group), shelf.receipt("b", [1, 2, 3, 4])
    )
    assert result.row(0).tolist() == [1, 2, 3, 4]
    assert result.row(1).tolist() == [-2, -1, 0, 1], "b still started from the global model"
    assert torch.equal(arrivals.pool.reference_D, torch.ones(4)), "which stays as it is"


def test_vector_is_read_into_the_given_tensor(shelf: Shelf) -> None:
    out_D = torch.zeros(4)
    assert shelf.vectors.read(shelf.put([1, 2, 3, 4]), out_D) is out_D
    assert out_D.tolist() == [1, 2, 3, 4]
    with pytest.raises(FileNotFoundError):
        shelf.vectors.read("0" * 64)
