"""The pool: calibrated updates as rows of one block on the worker's device.

Row k is (start_k - reference) + upload_k. It is client k's trained model relative to the global
model of the round, whichever model the client started from (FedCAP's recovery and calibration).

Legend: N rows, D coordinates, M rows that are filled.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.protocol.messages import Receipt
from rampart_fl.shared.robust import linalg
from rampart_fl.shared.robust.base import Rows
from rampart_fl.shared.robust.pool_statistics import PoolStatistics
from rampart_fl.shared.robust.sketch import Traces, sketch


class Vectors:
    """Reads models and updates from blobs onto the device."""

    def __init__(self, blobs: Blobs, spec: ModelSpec, device: torch.device) -> None:
        self._blobs = blobs
        self._spec = spec
        self.device = device

    @property
    def dim(self) -> int:
        """Number of coordinates D."""
        return self._spec.dim

    @property
    def trainable(self) -> int:
        """Number of parameters; in a vector they come before any running statistics."""
        return self._spec.trainable

    def read(self, digest: str, out_D: Tensor | None = None) -> Tensor:
        """Reads the vector (D,) of a blob, into `out_D` if that is given."""
        target_D = torch.empty(self.dim, device=self.device) if out_D is None else out_D
        host_D = target_D.numpy() if target_D.device.type == "cpu" else np.empty(self.dim, "f4")
        with self._blobs.open(digest) as file:
            size = file.seek(0, 2)
            file.seek(0)
            wire.read_vector(file, wire.read_header(file, size, self._spec), host_D)
        if target_D.device.type != "cpu":
            target_D.copy_(torch.from_numpy(host_D))
        return target_D


class Pool:
    """Rows of some clients relative to one reference model.

    Args:
        vectors: reads models and updates from blobs.
        reference: digest of the model that rows are relative to.
        clients: ids of the clients that get a row at once; others can be added later.
        calibrate: whether detectors judge clients by their recovered models. If not, detectors
            judge the raw uploads, which the pool then keeps in a second block.
        spare_ND: the block of a pool that is no longer needed; reused if its number of rows fits.
        claims: names of reported metrics that a stage reads; a metric that a client did not report
            counts as 0.
        base: gives, for a client's id, the digest of the model that its row is relative to; by
            default the reference.
        traces: how many numbers a sketch has, if detectors ask for sketches; 0 for none.
        unchanged: maps the digest of a challenged model to the digest of the model that it
            replaces. If a client started from a challenged model, its row is calibrated by the
            model that was replaced.
    """

    def __init__(
        self,
        vectors: Vectors,
        reference: str,
        clients: Iterable[str],
        calibrate: bool = True,
        spare_ND: Tensor | None = None,
        claims: Collection[str] = (),
        base: Callable[[str], str] | None = None,
        traces: int = 0,
        unchanged: Mapping[str, str] | None = None,
    ) -> None:
        self._unchanged = unchanged or {}
        self._vectors = vectors
        self._base = base or (lambda client: reference)
        self._claims = ("loss_gap", *claims)
        self.reference = reference
        self.reference_D = vectors.read(reference)
        self._start_D: Tensor | None = None
        self._started: str | None = None
        """Digest of the model in `_start_D`; None once it was written over."""
        self._slots = {client: slot for slot, client in enumerate(sorted(clients))}
        if spare_ND is None or len(spare_ND) != len(self._slots):
            spare_ND = self._block(len(self._slots))
        self.block_ND = spare_ND
        self._raw_ND = None if calibrate else self._block(len(self._slots))
        self.receipts: dict[str, Receipt] = {}
        self._broken: set[str] = set()
        self._moved: dict[str, float] = {}
        self._traces = traces
        self._uploads: dict[str, Tensor] = {}
        self._starts: dict[str, Tensor] = {}
        """Sketches of the models that clients started from, by the model's digest."""

    def _block(self, rows: int) -> Tensor:
        return torch.zeros(rows, self._vectors.dim, device=self._vectors.device)

    def __contains__(self, client: str) -> bool:
        return client in self.receipts

    def __len__(self) -> int:
        return len(self.receipts)

    @property
    def bytes(self) -> int:
        """Size of the blocks in bytes."""
        blocks = [self.block_ND] if self._raw_ND is None else [self.block_ND, self._raw_ND]
        return sum(block.element_size() * block.numel() for block in blocks)

    def load(self, receipt: Receipt) -> None:
        """Reads an accepted upload into its client's row."""
        client = receipt.client
        if client not in self._slots:
            self._grow(client)
        slot = self._slots[client]
        row_D = self.block_ND[slot]
        self._vectors.read(receipt.digest, row_D)
        if self._raw_ND is not None:
            self._raw_ND[slot] = row_D
        moved_D = row_D[: self._vectors.trainable]
        self._moved[client] = linalg.norm(moved_D)
        assert receipt.started is not None
        if self._traces:
            self._trace(client, moved_D, receipt.started)
        base, started = self._base(client), self._unchanged.get(receipt.started, receipt.started)
        if started != base:
            start_D = self._start(started)
            if start_D is self.reference_D:
                start_D = start_D.clone()
            else:
                self._started = None  # The subtraction below writes over it.
            base_D = self.reference_D if base == self.reference else self._vectors.read(base)
            # On the CPU, numpy computes this on the calling thread: that is enough for one pass,
            # and torch need not wake its threads.
            row, start, relative_to = map(_plain, (row_D, start_D, base_D))
            with np.errstate(over="ignore", invalid="ignore"):  # A row that overflows is dropped.
                start -= relative_to
                row += start
        self.receipts[client] = receipt
        self._broken.discard(client)
        # Every admitted upload is finite, so only the sum above can have a number that is not.
        if receipt.diverged or (started != base and not _finite(row_D)):
            row_D.zero_()
            self._broken.add(client)

    def _start(self, started: str) -> Tensor:
        """A model (D,) that a client started from; the next call may overwrite the tensor."""
        if started == self.reference:
            return self.reference_D
        if self._start_D is None or started != self._started:
            self._start_D = self._vectors.read(started, self._start_D)
            self._started = started
        return self._start_D

    def _trace(self, client: str, moved_D: Tensor, started: str) -> None:
        self._uploads[client] = sketch(moved_D, self._traces)
        if started not in self._starts:
            start_D = self._start(started)[: self._vectors.trainable]
            self._starts[started] = sketch(start_D, self._traces)

    def _grow(self, client: str) -> None:
        self._slots[client] = len(self.block_ND)
        self.block_ND = self._doubled(self.block_ND)
        if self._raw_ND is not None:
            self._raw_ND = self._doubled(self._raw_ND)

    def _doubled(self, block_ND: Tensor) -> Tensor:
        larger_ND = self._block(max(4, 2 * len(block_ND)))
        larger_ND[: len(block_ND)] = block_ND
        return larger_ND

    def keep(self, clients: Iterable[str]) -> None:
        """Forgets the rows of all clients but these."""
        kept = set(clients)
        self.receipts = {c: r for c, r in self.receipts.items() if c in kept}

    def judged(self, rows: Rows) -> Rows | None:
        """The raw uploads of the same clients if detectors judge those; None if not."""
        return (
            None
            if self._raw_ND is None
            else replace(rows, block_ND=self._raw_ND, pool_statistics=PoolStatistics())
        )

    def rows(self, weights: Mapping[str, float], stale: Collection[str] = ()) -> Rows:
        """The filled rows in order of client id, with weights from the server.

        Args:
            weights: weights of the rows, by client.
            stale: clients whose rows were judged in an earlier round already.
        """
        ids = sorted(client for client in self.receipts if client not in self._broken)
        slots = [self._slots[client] for client in ids]
        whole = slots == list(range(len(self.block_ND)))
        return Rows(
            block_ND=self.block_ND,
            ids=tuple(ids),
            index_K=None if whole else torch.tensor(slots),
            weights_M=torch.tensor([weights[client] for client in ids], dtype=torch.float64),
            metadata=self._metadata(ids, stale),
            dropped=tuple(sorted(self._broken & self.receipts.keys())),
            traces=self._traces_of(ids) if self._traces and ids else None,
        )

    def _traces_of(self, ids: list[str]) -> Traces:
        starts = [self.receipts[client].started for client in ids]
        return Traces(
            torch.stack([self._uploads[client] for client in ids]),
            torch.stack([self._starts[started] for started in starts if started is not None]),
        )

    def _metadata(self, ids: list[str], stale: Collection[str]) -> dict[str, Tensor]:
        """The metrics that clients reported about their rows, and those measured here."""
        columns = {
            **{
                claim: [self.receipts[client].metrics.get(claim, 0.0) for client in ids]
                for claim in self._claims
            },
            "moved": [self._moved[client] for client in ids],
            "fresh": [float(client not in stale) for client in ids],
        }
        return {name: torch.tensor(c, dtype=torch.float64) for name, c in columns.items()}


def _plain(vector_D: Tensor) -> Any:
    """A numpy view of a CPU tensor; any other tensor is returned as it is."""
    return vector_D.numpy() if vector_D.device.type == "cpu" else vector_D


def _finite(vector_D: Tensor) -> bool:
    if vector_D.device.type == "cpu":
        return bool(np.isfinite(vector_D.numpy()).all())
    return bool(vector_D.isfinite().all())
