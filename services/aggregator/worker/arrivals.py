"""Arrivals: reads accepted uploads from blobs directly into the rows of a pool.

Legend: D coordinates, K numbers of a sketch.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from torch import Tensor

from rampart_fl.services.aggregator.state.snapshot import Snapshot
from rampart_fl.services.aggregator.worker.vectors import Vectors
from rampart_fl.shared.protocol.messages import Receipt
from rampart_fl.shared.round.calibration import offset
from rampart_fl.shared.round.pool import Claim, Pool
from rampart_fl.shared.round.rounds import Rounds


@dataclass(frozen=True)
class ServedDigests:
    """Looks up the digests of the models that were sent to clients, for `round.calibration`.

    Args:
        snapshot: determines which model each client got.
        digest: digest of the reference model, to which rows are relative.
    """

    snapshot: Snapshot
    digest: str

    def reference(self) -> str:
        """The digest of the reference model, to which the rows of the pool are relative."""
        return self.digest

    def own(self, client: str) -> str:
        """The digest of the model that the client trains from if it is not challenged."""
        return self.snapshot.own(client)

    def origin(self, client: str, started: str) -> str:
        """Digest of the model from which a client started.

        If this model was challenged, the result is the digest of the model without the challenge.
        """
        return self.snapshot.origins_of(client).get(started, started)

    def same(self, one: str, other: str) -> bool:
        """Whether two digests refer to the same model."""
        return one == other


class Arrivals:
    """Fills a pool with accepted uploads.

    Args:
        rounds: the rounds of the experiment; `rounds.plan` says how rows are calibrated.
        vectors: reads models and updates from blobs.
        served: the models that the server sent to clients.
        pool: the pool to fill; the pool and `served` have the same reference model.
    """

    def __init__(self, rounds: Rounds, vectors: Vectors, served: ServedDigests, pool: Pool) -> None:
        self.pool = pool
        self._plan = rounds.plan
        self._vectors = vectors
        self._served = served
        self._start_D: Tensor | None = None
        self._started: str | None = None
        """Digest of the model in `_start_D`; None after the tensor `_start_D` was overwritten."""
        self._sketches: dict[str, Tensor | None] = {}
        """Sketches of the models that clients started from, by the model's digest."""

    def load(self, receipt: Receipt) -> None:
        """Reads an accepted upload into its client's row."""
        started = receipt.started
        assert started is not None
        self._vectors.read(receipt.digest, self.pool.row(receipt.client))
        start_K = self._sketch(started) if self._plan.traces else None
        models = self._offset(receipt.client, started)
        self.pool.admit(receipt.client, start_K, models, receipt.diverged)

    def release_start(self) -> None:
        """Frees the cached start model, which is read again if another upload needs it."""
        self._start_D = self._started = None

    def _offset(self, client: str, started: str) -> tuple[Tensor, Tensor] | None:
        """Two models; the pool adds their difference (first - second) to the client's upload.

        None if both models are equal. The caller may overwrite the first tensor.
        """
        start = self._served.origin(client, started)
        digests = offset(self._served, client, start, self._plan.customizer.isolates)
        if digests is None:
            return None
        start, base = digests
        start_D = self._start(start)
        if start_D is self.pool.reference_D:
            start_D = start_D.clone()
        else:
            self._started = None
        known = base == self._served.reference()
        return start_D, self.pool.reference_D if known else self._vectors.read(base)

    def _sketch(self, started: str) -> Tensor | None:
        if started not in self._sketches:
            self._sketches[started] = self.pool.sketch(self._start(started))
        return self._sketches[started]

    def _start(self, started: str) -> Tensor:
        """A model (D,) that a client started from; the next call may overwrite the tensor."""
        if started == self._served.reference():
            return self.pool.reference_D
        if self._start_D is None or started != self._started:
            self._start_D = self._vectors.read(started, self._start_D)
            self._started = started
        return self._start_D


def claims(
    round_: int, receipts: Mapping[str, Receipt], judged: Iterable[Receipt]
) -> dict[str, Claim]:
    """What each client claims about its update, keyed by client.

    Args:
        round_: number of the round.
        receipts: the updates of the round, by client.
        judged: the updates that an earlier round has already judged.
    """
    before = {receipt.client: receipt for receipt in judged}
    return {
        client: Claim(
            samples=receipt.samples,
            metrics=receipt.metrics,
            staleness=max(0, round_ - receipt.round),
            fresh=before.get(client) != receipt,
        )
        for client, receipt in receipts.items()
    }
