"""Robust distance: what stands apart is rejected, who keeps at it is evicted.

A row is rejected for one round on that round's numbers; a client is evicted for good only on the
evidence of many rounds.

Legend: M rows of the round, H clients under watch.
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
    """Objects to clients that stand apart from the others and keep moving.

    excess(x) = (x - med x) / max(mads·MAD(x), (ratio - 1)·med x): 1 lies `mads` median absolute
    deviations above the median or at `ratio` times it, whichever is more.

    Two excesses: of the distance |row - median row|, which does not depend on the model that rows
    are relative to, so that a poisoned reference moves nobody's; and of the movement, the norm of
    the raw upload (metadata "moved"), how far the client went from the model that it was given.
    Honest clients may stand apart for good (rare data) but settle there, and may move for good
    (hard data) but around where the others are; who works against the others does both. Where the
    movement is not known, the distance stands for it; a row that is not finite exceeds everything.

    Rejected this round: distance excess > 1, unless the movement excess is within `drift`.

    Evicted for good: S <- max(0, S + min(e, cap) - drift) exceeds `limit`, where e is the geometric
    mean of both (0 where one is negative). One round adds cap - drift at most, so no single round
    evicts, and an honest client that was led astray once loses its evidence again. Evidence rests
    in a round that cannot be compared: the client was not there in the round before (who comes back
    has further to go than who stayed), or its row was judged before (metadata "fresh" 0). It
    belongs to the client's id and is forgotten when the client is barred, so that who comes back
    begins anew.

    It evicts honest clients whose data are rare, or many: more samples mean more steps, so such a
    client both stands apart and keeps moving. `response` does not compare clients.

    >>> rows = Rows.of(torch.tensor([[0.0], [1.0], [2.0], [3.0], [50.0]]))
    >>> verdicts, _ = RobustDistance().apply(rows, State(), Context())
    >>> [verdict.decision for verdict in verdicts]
    ['accepted', 'accepted', 'accepted', 'accepted', 'rejected']
    """

    paper = "Page, Continuous inspection schemes, 1954 (cumulative sum), on robust scores"
    breakdown = "none: identical colluders near half own the median"
    complexity = "O(n log n · d)"
    mads: float = Field(default=6.0, gt=0)
    """Median absolute deviations above the median that are tolerated."""
    ratio: float = Field(default=2.0, gt=1)
    """Multiple of the median that is tolerated."""
    drift: float = Field(default=0.35, gt=0)
    """Excess that an honest client does not keep up."""
    cap: float = Field(default=1.35, gt=0)
    """Largest excess that counts in one round."""
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
        """How far norms (M,) lie above their median, in units of what is tolerated.

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
            f"movement above the medians; evidence {evidence:.3g} of {self.limit:g}",
            evidence=evidence,
        )


def _median(values_M: Tensor) -> Tensor:
    """The mean of the middle two for an even number of values."""
    ordered_M, m = values_M.sort().values, len(values_M)
    return (ordered_M[(m - 1) // 2] + ordered_M[m // 2]) / 2
