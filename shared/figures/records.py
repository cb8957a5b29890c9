"""The record of a round: the engine's decisions as numbers and names."""

from math import isfinite
from typing import Any

from rampart_fl.shared.protocol.messages import VerdictRecord
from rampart_fl.shared.robust import linalg
from rampart_fl.shared.robust.base import Rows, Verdict
from rampart_fl.shared.robust.engine import RoundOutcome
from rampart_fl.shared.robust.models import Mixture


def decisions(rows: Rows, outcome: RoundOutcome) -> dict[str, Any]:
    """The fields of a `RoundRecord` that follow from a round's outcome.

    Args:
        rows: the calibrated rows of the round, over the parameters.
        outcome: the result of `run_round` for these rows.
    """
    mixing: dict[str, dict[str, float]] = {}
    customization = outcome.customization
    mixture = customization.models
    if isinstance(mixture, Mixture):
        for name, weights_M in zip(mixture.names, mixture.mix_LM.tolist(), strict=True):
            mixing[name] = dict(zip(mixture.rows.ids, weights_M, strict=True))
    received = {client: customization.names_for(client) for client in rows.ids}
    last = outcome.reports[-1] if outcome.reports else None
    return {
        "verdicts": [verdict_record(verdict) for verdict in outcome.verdicts],
        "weights": last.column("weight") if last and "weight" in last.per_row else {},
        "mixing": mixing,
        "assignment": {c: list(names) for c, names in received.items() if names not in ((), (c,))},
        "norms": dict(zip(rows.ids, linalg.norms(rows).tolist(), strict=True)),
        "reports": [
            {
                "stage": report.stage,
                "values": dict(report.values),
                "per_row": {name: report.column(name) for name in report.per_row},
            }
            for report in outcome.reports
        ],
    }


def verdict_record(verdict: Verdict) -> VerdictRecord:
    """A verdict as it is stored; a score or threshold that is not finite becomes None."""
    return VerdictRecord(
        client=verdict.client,
        decision=verdict.decision,
        asked=verdict.asked,
        detector=verdict.detector,
        score=verdict.score if isfinite(verdict.score) else None,
        threshold=verdict.threshold if isfinite(verdict.threshold) else None,
        evidence=verdict.evidence,
        reason=verdict.reason,
    )
