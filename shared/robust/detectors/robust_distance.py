"""Robust distance: rejects outlying rows, and evicts clients whose rows remain outliers.

The detector can reject a row because of a single round. To evict a client, the detector needs
evidence from several rounds.

Legend: M rows of the round, H clients with evidence.
"""

from math import inf, sqrt
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from rampart_fl.shared.robust import linalg
from rampart_fl.shared.robust.base import Context, Detector, Rows, State, Verdict
from rampart_fl.shared.robust.detectors import detectors


@detectors.register("robust_distance")
class RobustDistance(Detector):
    """Evicts clients that stay far from the other clients, and keep moving their models far.

    The excess of a number x is (x - med x) / max(mads·MAD(x), (ratio - 1)·med x). Here, med x is
    the median over all rows of the round, and MAD(x) is the median absolute deviation from it. The
    excess is 1 if x equals the larger of two limits: the median plus `mads` median absolute
    deviations, and `ratio` times the median.

    The detector computes two excesses for each row. The first excess is computed from the row's
    distance to the median row, |row - median row|. This distance does not depend on the rows'
    reference model, so poisoning the reference model does not change the first excess. The second
    excess is computed from the client's movement. The movement is the distance by which the client
    moved the model that it received, that is, the norm of the raw upload (metadata "moved"). An
    honest client with unusual data may remain far from the other clients, but it stops moving the
    model. An honest client whose data are hard to fit may keep moving the model, but it stays near
    the other clients. A client that works against the other clients remains far from these clients
    and keeps moving the model. If the metadata do not state the movement, the second excess is also
    computed from the distance. If a row is not finite, both excesses of the row are infinite.

    A row is rejected in this round if its distance excess is above 1 and its movement excess is
    above `drift`.

    In each round, the detector changes the evidence S against a client to max(0, S + min(e, cap) -
    drift). Here, e is the geometric mean of both excesses, or 0 if either excess is negative. A
    client is evicted for good if the evidence S against the client exceeds `limit`. One round adds
    at most cap - drift to the evidence, so with the default settings a single round never leads to
    an eviction. If an honest client has one unusual round, the evidence against the client
    decreases in the following rounds. A client that missed a round has an outdated model, so the
    client must move its model further than the other clients do. The evidence against a client
    therefore does not change if the client did not take part in the previous round. A row whose
    metadata "fresh" is 0 was judged in an earlier round and does not change the evidence. The
    detector keeps the evidence by client id. When a client is barred, the evidence against it is
    forgotten, so a barred client that returns starts without evidence.

    The detector also evicts some honest clients with unusual data or with many samples. A client
    with many samples takes many training steps, so the client remains far from the other clients
    and keeps moving the model. The detector `response` avoids evictions for unusual data or many
    samples, because it does not compare clients with each other.

    >>> rows = Rows.of(torch.tensor([[0.0], [1.0], [2.0], [3.0], [50.0]]))
    >>> verdicts, _ = RobustDistance().apply(rows, State(), Context())
    >>> [verdict.decision for verdict in verdicts]
    ['accepted', 'accepted', 'accepted', 'accepted', 'rejected']
    """

    paper = "Page, Continuous inspection schemes, 1954 (cumulative sum), on robust scores"
    breakdown = "none: identical colluders near half own the median"
    complexity = "O(n log n · d)"
    passes = "2"
    mads: float = Field(default=6.0, gt=0)
    """Tolerated distance or movement above the median, in median absolute deviations."""
    ratio: float = Field(default=2.0, gt=1)
    """Tolerated distance or movement, as a multiple of the median."""
    drift: float = Field(default=0.35, gt=0)
    """Assumed upper bound on an honest client's mean excess over many rounds. In each round, the
    detector subtracts this number from the evidence."""
    cap: float = Field(default=1.35, gt=0)
    """Largest excess that is added to the evidence in one round."""
    limit: float = Field(default=1.5, gt=0)
    """Evidence above which a client is evicted."""

    def apply(
        self, rows: Rows, state: State, context: Context
    ) -> tuple[tuple[Verdict, ...], State]:
        distances_M = linalg.norms(rows, linalg.median(rows))
        apart_M = self.excess(distances_M).clamp(min=0)
        moving_M = self.excess(rows.metadata.get("moved", distances_M)).clamp(min=0)
        beyond = [(inf, inf)] * len(rows.dropped)
        excesses = [*zip(apart_M.tolist(), moving_M.tolist(), strict=True), *beyond]
        fresh = [*rows.fresh(), *(True for _ in rows.dropped)]
        evidence = {client: float(held) for client, held in state.by_id("evidence").items()}
        before, now = state.ids.get("present"), (*rows.ids, *rows.dropped)
        verdicts = []
        for client, (apart, moving), new in zip(now, excesses, fresh, strict=True):
            counts = new and (before is None or client in before)
            gained = min(sqrt(apart * moving), self.cap) - self.drift if counts else 0.0
            evidence[client] = max(0.0, evidence.get(client, 0.0) + gained)
            verdicts.append(self._verdict(client, apart, moving, evidence[client]))
        ids = tuple(sorted(client for client, held in evidence.items() if held > 0))
        held_H = torch.tensor([evidence[client] for client in ids], dtype=torch.float64)
        kept = {"evidence": held_H, "present": torch.ones(len(now))}
        return tuple(verdicts), State(kept, {"evidence": ids, "present": now})

    def excess(self, values_M: Tensor) -> Tensor:
        """How far norms (M,) are above their median, in units of the tolerated difference.

        >>> RobustDistance().excess(torch.tensor([1.0, 1.0, 1.0, 3.0]))
        tensor([0., 0., 0., 2.])
        """
        centre = _median(values_M)
        spread = _median((values_M - centre).abs())
        scale = torch.maximum(self.mads * spread, (self.ratio - 1) * centre)
        return ((values_M - centre) / scale).nan_to_num(nan=0.0, posinf=1e100)

    def _verdict(self, client: str, apart: float, moving: float, evidence: float) -> Verdict:
        decision: Literal["accepted", "rejected", "evicted"] = "accepted"
        if evidence > self.limit:
            decision = "evicted"
        elif apart > 1 and moving > self.drift:
            decision = "rejected"
        return Verdict(
            client=client,
            decision=decision,
            detector=self.name,
            score=apart,
            threshold=1.0,
            reason=f"{apart:.3g} of the tolerated distance and {moving:.3g} of the tolerated "
            f"movement above the medians; evidence {evidence:.3g} "
            f"{'exceeds' if decision == 'evicted' else 'of'} {self.limit:g}",
            evidence=evidence,
        )


def _median(values_M: Tensor) -> Tensor:
    """The median; for an even number of values, the mean of the two middle values."""
    ordered_M, m = values_M.sort().values, len(values_M)
    return (ordered_M[(m - 1) // 2] + ordered_M[m // 2]) / 2
