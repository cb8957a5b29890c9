"""Converts the result of a round to fields of the round's record."""

from dataclasses import dataclass
from math import isfinite

from rampart_fl.shared.experiment.eviction import Mode
from rampart_fl.shared.protocol.messages import StageReport, VerdictRecord
from rampart_fl.shared.robust import linalg
from rampart_fl.shared.robust.base import Verdict
from rampart_fl.shared.robust.models import Mixture
from rampart_fl.shared.round.rounds import RoundDecision


@dataclass(frozen=True)
class DecisionRecord:
    """The fields that a `RoundRecord` takes from a `RoundDecision`, under the same names."""

    verdicts: list[VerdictRecord]
    weights: dict[str, float]
    mixing: dict[str, dict[str, float]]
    assignment: dict[str, list[str]]
    norms: dict[str, float]
    reports: list[StageReport]
    quarantined: list[str]
    mode: Mode
    tested: dict[str, float]

    @staticmethod
    def of(decision: RoundDecision) -> "DecisionRecord":
        """Computes the fields from the result of a round."""
        outcome, clients = decision.outcome, decision.rows.ids
        customization = outcome.customization
        mixing: dict[str, dict[str, float]] = {}
        mixture = customization.models
        if isinstance(mixture, Mixture):
            for name, weights_M in zip(mixture.names, mixture.mix_LM.tolist(), strict=True):
                mixing[name] = dict(zip(mixture.rows.ids, weights_M, strict=True))
        received = {client: customization.names_for(client) for client in clients}
        last = outcome.reports[-1] if outcome.reports else None
        return DecisionRecord(
            verdicts=[verdict_record(verdict) for verdict in outcome.verdicts],
            weights=last.column("weight") if last and "weight" in last.per_row else {},
            mixing=mixing,
            assignment={c: list(names) for c, names in received.items() if names not in ((), (c,))},
            norms=dict(zip(clients, linalg.norms(decision.rows).tolist(), strict=True)),
            reports=[
                StageReport(
                    stage=report.stage,
                    values=dict(report.values),
                    per_row={name: dict(report.column(name)) for name in report.per_row},
                )
                for report in outcome.reports
            ],
            quarantined=list(decision.quarantined),
            mode=decision.mode,
            tested=decision.tested,
        )


def verdict_record(verdict: Verdict) -> VerdictRecord:
    """A verdict in its stored form; non-finite scores and thresholds become None."""
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
