"""Cosine consistency: does a client's update have about the same direction as most updates?"""

from typing import Literal

import torch
from pydantic import Field

from rampart_fl.shared.robust import linalg
from rampart_fl.shared.robust.base import Context, Detector, Rows, State, Verdict
from rampart_fl.shared.robust.detectors import detectors, verdict_for


@detectors.register("cosine")
class Cosine(Detector):
    """Rejects a client whose median cosine similarity to the other clients is below `threshold`.

    For each client, the median is taken over all other clients, so a minority of colluders cannot
    control the median. A zero row has similarity -1 to all other rows. If there is only one row,
    that row is accepted. If the clients' data differ much, even honest updates are nearly
    orthogonal, and a lower threshold is needed.
    """

    paper = (
        "after Sattler et al., On the Byzantine robustness of clustered federated learning, 2020"
    )
    breakdown = "f < (n - 1)/2, where honest updates are at acute angles"
    complexity = "O(n²d)"
    passes = "1"
    threshold: float = Field(default=0.0, ge=-1, le=1)
    """Lowest median cosine that is accepted."""
    decision: Literal["rejected", "evicted"] = "rejected"
    """What the detector asks for if a client's median cosine is below the threshold."""

    def apply(
        self, rows: Rows, state: State, context: Context
    ) -> tuple[tuple[Verdict, ...], State]:
        m = len(rows)
        if m == 1:
            alone = Verdict(rows.ids[0], "accepted", self.name, 1.0, self.threshold, "no others")
            return (alone,), state
        others_MM = linalg.cosines(rows)[~torch.eye(m, dtype=torch.bool)].view(m, m - 1)
        sorted_MM = others_MM.sort(dim=1).values
        medians_M = (sorted_MM[:, (m - 2) // 2] + sorted_MM[:, (m - 1) // 2]) / 2
        return tuple(map(self._judge, rows.ids, medians_M.tolist())), state

    def _judge(self, client: str, score: float) -> Verdict:
        under = score < self.threshold
        return verdict_for(
            self,
            client,
            score,
            self.threshold,
            self.decision if under else None,
            "median cosine to the other clients {0} "
            + ("is below {1}" if under else "is at least {1}"),
        )
