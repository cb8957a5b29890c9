"""The pool: calibrated uploads as rows of one block, and what the server knows about each upload.

Row k is (start_k - base_k) + upload_k. Row k is therefore the difference between client k's trained
model and base_k. Row k is this difference no matter which model the client started from (FedCAP's
recovery and calibration). The base is the global model of the round or, if groups of clients are
isolated, the client's own model.

Legend: N rows of the block, M rows of a view, D coordinates, K numbers of a sketch.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rampart_fl.shared.robust import linalg
from rampart_fl.shared.robust.base import Rows
from rampart_fl.shared.robust.engine import Plan
from rampart_fl.shared.robust.pool_statistics import PoolStatistics
from rampart_fl.shared.robust.shards import Part
from rampart_fl.shared.robust.sketch import Traces, sketch
from rampart_fl.shared.robust.view import View
from rampart_fl.shared.runtime.disk_block import Block, BlockStorage


@dataclass(frozen=True)
class Claim:
    """What the server knows about an upload in addition to its vector.

    Args:
        samples: the number of training samples that the client claims.
        metrics: the metrics that the client reports, by name.
        staleness: the age of the upload, in rounds since the client received its starting model.
        fresh: False if an earlier round has already judged the upload.
    """

    samples: int
    metrics: Mapping[str, float]
    staleness: int = 0
    fresh: bool = True

    def weight(self, cap: int) -> float:
        """The weight of the row, min(samples, cap) / √(1 + staleness).

        >>> Claim(900, {}, staleness=3).weight(cap=100)
        50.0
        """
        return float(min(self.samples, cap) / (1 + self.staleness) ** 0.5)


@dataclass(frozen=True, eq=False)
class _RowMeasurements:
    """Measurements of a row, taken when the row was admitted to the pool.

    Args:
        moved: norm of the raw upload.
        upload_K: sketch of the raw upload; None if no detector asks for sketches.
        start_K: sketch of the model that the client trained from.
        dropped: whether the row is left out. A row is left out if it is not finite, or if the
            training has diverged.
    """

    moved: float
    upload_K: Tensor | None
    start_K: Tensor | None
    dropped: bool


class Pool:
    """Rows of some clients relative to one reference model.

    To add a row, write the upload into `row(client)`, then call `admit`. `admit` copies the upload
    only if detectors see raw uploads.

    Args:
        plan: the stages of a round. The plan defines which claims the stages read, how large the
            sketches are, and whether detectors see raw uploads. If detectors see raw uploads, the
            pool keeps these uploads in a second block.
        trainable: number of parameters; in each vector, the parameters come before any running
            statistics.
        reference_D: the model that rows are relative to.
        clients: ids of the clients that get a row from the start; rows for other clients can be
            added later.
        storage: where the pool keeps its blocks; in memory by default.
        spare: the block of a discarded pool; the block is reused if it has one row for each of
            `clients`.
        part: the coordinates that this rank holds; None if it holds all coordinates.
        seed: the seed of the sketches.
    """

    def __init__(
        self,
        plan: Plan,
        trainable: int,
        reference_D: Tensor,
        clients: Iterable[str],
        storage: BlockStorage | None = None,
        spare: Block | None = None,
        part: Part | None = None,
        seed: int = 0,
    ) -> None:
        self.reference_D = reference_D
        self._part = part
        self._seed = seed
        self._place = part or Part(trainable, 0, trainable)
        self._plan = plan
        self._trainable = trainable
        self._slots = {client: slot for slot, client in enumerate(sorted(clients))}
        self._storage = BlockStorage() if storage is None else storage
        if spare is None or len(spare) != len(self._slots):
            spare = self._zeros(len(self._slots))
        self.block = spare
        self._raw = None if plan.calibrate else self._zeros(len(self._slots))
        self._measured: dict[str, _RowMeasurements] = {}
        self._squares_N = self._unmeasured(self.block)
        self._raw_squares_N = None if self._raw is None else self._unmeasured(self._raw)

    def __contains__(self, client: str) -> bool:
        return client in self._measured

    @property
    def bytes(self) -> int:
        """The total size of the pool's blocks in bytes."""
        return self.block.bytes + (0 if self._raw is None else self._raw.bytes)

    def row(self, client: str) -> Tensor:
        """The row (D,) to write a client's upload into; call `admit` before the next `row`."""
        if client not in self._slots:
            self._slots[client] = len(self._slots)
            if len(self._slots) > len(self.block):
                self.block, self._squares_N = self._doubled(self.block)
                if self._raw is not None:
                    self._raw, self._raw_squares_N = self._doubled(self._raw)
        return self.block.tensor[self._slots[client]]

    def admit(
        self,
        client: str,
        start_K: Tensor | None = None,
        offset: tuple[Tensor, Tensor] | None = None,
        diverged: bool = False,
    ) -> None:
        """Measures and calibrates the upload that was written into the client's row.

        A row is dropped if the client says that its training has diverged. A row is also dropped if
        the upload or the calibrated row is not finite.

        Args:
            client: the client's id.
            start_K: sketch of the model that the client trained from, if the plan needs sketches.
            offset: the models (start, base) of `calibration.offset`; the tensor of the start is
                overwritten.
            diverged: whether the client says that its training has diverged.
        """
        slot = self._slots[client]
        row_D, end = self.block.tensor[slot], self._trainable
        raw_D = None if self._raw is None else self._raw.tensor[slot]
        moved = linalg.norm(row_D[:end], self._part)
        # If the norm is finite, all numbers are finite. Otherwise, the numbers themselves are
        # checked, because the squares of finite float64 numbers can overflow.
        finite = isfinite(moved) or self._place.every(_finite(row_D[:end]))
        sound = not diverged and finite and _finite(row_D[end:])
        upload_K = self.sketch(row_D)
        if raw_D is not None:
            raw_D.copy_(row_D)
        if sound and offset is not None:
            _add_difference(row_D, *offset)
            sound = self._place.every(_finite(row_D))
        if not sound:
            for kept_D in (row_D, raw_D):
                if kept_D is not None:
                    kept_D.zero_()
        self._measure(self.block, self._squares_N, slot)
        self.block.release(slot)
        if self._raw is not None:
            self._measure(self._raw, self._raw_squares_N, slot)
            self._raw.release(slot)
        self._measured[client] = _RowMeasurements(moved, upload_K, start_K, not sound)

    def sketch(self, vector_D: Tensor) -> Tensor | None:
        """The sketch (K,) of a vector's parameters; None if no detector asks for sketches."""
        size = self._plan.traces
        if not size:
            return None
        return sketch(vector_D[: self._trainable], size, self._seed, self._part)

    def rows(self, claims: Mapping[str, Claim], cap: int) -> Rows:
        """The calibrated rows of the clients in `claims`, in the order of their ids.

        Args:
            claims: what is known about each upload, keyed by client; the upload of each client must
                have been admitted.
            cap: the cap on the sample counts from which the rows' weights are computed.
        """
        dropped = {client for client in claims if self._measured[client].dropped}
        ids = sorted(claims.keys() - dropped)
        slots = [self._slots[client] for client in ids]
        whole = slots == list(range(len(self.block)))
        weights = [claims[client].weight(cap) for client in ids]
        return Rows(
            block_ND=self.block.tensor,
            ids=tuple(ids),
            index_K=None if whole else torch.tensor(slots, dtype=torch.long),
            weights_M=torch.tensor(weights, dtype=torch.float64),
            metadata=self._metadata(ids, claims),
            dropped=tuple(sorted(dropped)),
            traces=self._traces(ids),
            pool_statistics=self._statistics(self.block, self._squares_N),
            file=self.block.file,
            part=self._part,
            storage=self._storage,
        )

    def judged(self, rows: Rows) -> Rows | None:
        """The raw uploads of the clients in `rows` if detectors see raw uploads; otherwise None."""
        if self._raw is None:
            return None
        return replace(
            rows,
            block_ND=self._raw.tensor,
            file=self._raw.file,
            pool_statistics=self._statistics(self._raw, self._raw_squares_N),
        )

    def _zeros(self, rows: int) -> Block:
        return self._storage.zeros(rows, self.reference_D)

    def _unmeasured(self, block: Block) -> Tensor | None:
        """Placeholders (NaN) for the squared norms (N,) of rows in a file; None for rows in memory.

        If the block of any rank is in a file, all ranks get placeholders, because they measure
        norms together. A rank without coordinates has no file of its own.
        """
        if self._place.every(block.file is None):
            return None
        return torch.full((len(block),), torch.nan, dtype=torch.float64)

    def _doubled(self, block: Block) -> tuple[Block, Tensor | None]:
        """A copy of the block with room for twice as many rows, and the rows' squared norms."""
        larger = self._zeros(max(4, 2 * len(block)))
        squares_N = self._unmeasured(larger)
        admitted = {self._slots[client] for client in self._measured}
        for slot, row_D in enumerate(block.tensor):
            larger.tensor[slot] = row_D
            if slot in admitted:
                # A pass reads columns in windows; the width of the windows depends on the number of
                # rows. A different width can change the last bits of a norm. The norm is therefore
                # measured again in the larger block.
                self._measure(larger, squares_N, slot)
            block.release(slot)
            larger.release(slot)
        return larger, squares_N

    def _measure(self, block: Block, squares_N: Tensor | None, slot: int) -> None:
        """Measures the squared norm of a row's parameters if the block is in a file.

        Because the norm is measured now, no later pass has to read the file for it. The norm has
        the same bits as in a pass over all rows. For a block in memory, all norms are measured
        later in one pass, which is faster than one call for each row.
        """
        if squares_N is not None:
            held_ND, index_K = block.tensor[:, : self._trainable], torch.tensor([slot])
            row = View(held_ND, ids=("row",), index_K=index_K, part=self._part)
            squares_N[slot] = linalg.squared_norms(row)[0]

    def _statistics(self, block: Block, squares_N: Tensor | None) -> PoolStatistics:
        """The norms that were measured when rows were admitted; empty for a block in memory."""
        if squares_N is None:
            return PoolStatistics()
        whole = self._trainable >= block.tensor.shape[1]
        return PoolStatistics(
            squares_N=squares_N.clone(), squares_of=None if whole else slice(0, self._trainable)
        )

    def _metadata(self, ids: list[str], claims: Mapping[str, Claim]) -> dict[str, Tensor]:
        """Metadata of the rows: clients' metrics (0 if missing), and the server's own numbers."""
        columns = {
            **{
                name: [claims[client].metrics.get(name, 0.0) for client in ids]
                for name in ("loss_gap", *self._plan.customizer.claims)
            },
            "moved": [self._measured[client].moved for client in ids],
            "fresh": [float(claims[client].fresh) for client in ids],
            "age": [claims[client].staleness for client in ids],
        }
        return {name: torch.tensor(c, dtype=torch.float64) for name, c in columns.items()}

    def _traces(self, ids: list[str]) -> Traces | None:
        measured = [self._measured[client] for client in ids]
        uploads = [one.upload_K for one in measured if one.upload_K is not None]
        starts = [one.start_K for one in measured if one.start_K is not None]
        return Traces(torch.stack(uploads), torch.stack(starts)) if uploads else None


def _add_difference(row_D: Tensor, start_D: Tensor, base_D: Tensor) -> None:
    """Adds `start_D - base_D` to the row; afterwards, `start_D` holds this difference."""
    # On the CPU, numpy adds the vectors on the calling thread alone. For a single pass over the
    # vectors, one thread is fast enough.
    row, start, base = map(_plain, (row_D, start_D, base_D))
    with np.errstate(over="ignore", invalid="ignore"):  # `admit` drops a row that overflows.
        start -= base
        row += start


def _plain(vector_D: Tensor) -> Any:
    """A numpy view of a CPU tensor; any other tensor is returned unchanged."""
    return vector_D.numpy() if vector_D.device.type == "cpu" else vector_D


def _finite(vector_D: Tensor) -> bool:
    if vector_D.device.type == "cpu":
        return bool(np.isfinite(vector_D.numpy()).all())
    return bool(vector_D.isfinite().all())
