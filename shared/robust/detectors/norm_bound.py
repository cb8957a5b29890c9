"""FedCAP's detector: an absolute bound on the norm of a calibrated update."""

from math import inf

from pydantic import Field

from rampart_fl.shared.robust import linalg
from rampart_fl.shared.robust.base import Context, Detector, Rows, State, Verdict
from rampart_fl.shared.robust.detectors import detectors, verdict_for


@detectors.register("norm_bound")
class NormBound(Detector):
    """Evicts every client whose calibrated update d has |d| > threshold (strictly).

    The norm is taken over the whole vector, and is infinite for a row that is not finite. The
    detector judges all rows, including rows that another detector rejects.
    """

    paper = "FedCAP, section V-C: anomaly detection with T_norm"
    breakdown = "f < n in one round; over rounds, attackers that move models can reach others"
    complexity = "O(nd)"
    passes = "0"
    alone = True
    threshold: float = Field(default=10.0, gt=0)
    """T_norm, the largest norm that is accepted, in the units of the parameters."""

    def apply(
        self, rows: Rows, state: State, context: Context
    ) -> tuple[tuple[Verdict, ...], State]:
        lengths = [*linalg.norms(rows).tolist(), *(inf for _ in rows.dropped)]
        return tuple(map(self._judge, (*rows.ids, *rows.dropped), lengths)), state

    def _judge(self, client: str, norm: float) -> Verdict:
        over = norm > self.threshold
        return verdict_for(
            self,
            client,
            norm,
            self.threshold,
            "evicted" if over else None,
            "norm of the calibrated update {0} " + ("exceeds {1}" if over else "is within {1}"),
        )
