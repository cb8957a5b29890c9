"""The state of an open round, and the record of a round that has ended."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rampart_fl.services.aggregator.state.snapshot import Snapshot
from rampart_fl.services.aggregator.worker.phases.state import PhaseState
from rampart_fl.services.aggregator.worker.round_engine import RoundResult
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.protocol.clients import Finding, Quarantine
from rampart_fl.shared.protocol.messages import Receipt, RoundRecord, VerdictRecord


@dataclass
class OpenRoundData:
    """A worker's data about the open round, in addition to the phase machine's state."""

    receipts: dict[str, Receipt] = field(default_factory=dict)
    """The receipt of each client's update in this round, by client."""
    probed: dict[str, int] = field(default_factory=dict)
    """Size in bytes of each answer to a probe, by client."""
    uploads: set[str] = field(default_factory=set)
    """Digests of blobs to delete after this round; a blob stays if something still refers to it."""
    loading: float = 0.0
    """Seconds spent reading updates while the round was open."""
    closed: "ClosedRound | None" = None
    """What the round engine computed from this round; None before the computation."""


@dataclass(frozen=True)
class ClosedRound:
    """The round engine's result for a closed round."""

    before: Snapshot
    """The snapshot with which the round began."""
    receipts: Mapping[str, Receipt]
    """The receipts of the updates from which the result was computed, by client. The round may have
    rejected some of these updates."""
    decided: RoundResult
    reinstated: frozenset[str]
    """The reinstated clients about whom the detectors forgot what they knew."""


def published_record(
    experiment: Experiment,
    state: PhaseState,
    opened: OpenRoundData,
    closed: ClosedRound,
    now: float,
) -> RoundRecord:
    """The record of a published round.

    Args:
        experiment: the run's experiment.
        state: the state of the phase machine.
        opened: the worker's data about the round.
        closed: the round engine's result.
        now: Unix time at which the round closed.
    """
    before, receipts, decided = closed.before, closed.receipts, closed.decided
    arrived = {c: opened.receipts[c] for c in sorted(receipts) if c in opened.receipts}
    waited_for = frozenset() if experiment.policy == "buffered" else state.selected

    def models_sent(client: str) -> int:
        """Number of models sent to a client: the models of its ticket, and one more for a probe."""
        return len(set(before.ticket_models(client).values())) + (client in opened.probed)

    steps = {**decided.timings, "load": opened.loading + decided.timings["load"]}
    return RoundRecord(
        round=state.round,
        status="published",
        policy=experiment.policy,
        participants=sorted(receipts),
        missing=sorted(waited_for - receipts.keys()),
        examined=sorted(state.examined),
        **vars(decided.record),
        staleness={client: state.round - r.round for client, r in receipts.items()},
        metrics={client: r.metrics for client, r in receipts.items()},
        probed=sorted(opened.probed),
        models={
            "global": decided.snapshot.global_model,
            "reference": decided.snapshot.reference,
        },
        customized=decided.snapshot.customized,
        opened_at=state.opened_at,
        closed_at=now,
        bytes_down={client: models_sent(client) * decided.model_bytes for client in arrived},
        bytes_up={client: r.size + opened.probed.get(client, 0) for client, r in arrived.items()},
        timings={"collect": now - state.opened_at - sum(decided.timings.values()), **steps},
    )


def failed_record(
    experiment: Experiment, state: PhaseState, opened: OpenRoundData, reason: str, now: float
) -> RoundRecord:
    """The record of a round that failed."""
    return RoundRecord(
        round=state.round,
        status="failed",
        reason=reason,
        policy=experiment.policy,
        participants=sorted(opened.receipts),
        missing=sorted(state.selected - opened.receipts.keys()),
        examined=sorted(state.examined),
        metrics={client: opened.receipts[client].metrics for client in sorted(opened.receipts)},
        opened_at=state.opened_at,
        closed_at=now,
    )


def barring_evidence(
    experiment: Experiment, decided: RoundResult, round_: int, now: float
) -> tuple[dict[str, Finding], dict[str, Quarantine]]:
    """Evidence to store about the clients that this round bars, keyed by client id.

    Returns:
        The evidence about the evicted clients, and the evidence about the clients that are
        quarantined or proposed for eviction.
    """

    def quarantine(verdict: VerdictRecord) -> Quarantine:
        return Quarantine(
            **Finding.of(verdict, round_, now).model_dump(),
            kind="proposal" if verdict.decision == "proposed" else "quarantine",
            until=experiment.server.eviction.until(verdict.decision, round_),
        )

    evicted = {c: Finding.of(v, round_, now) for c, v in decided.about("evicted").items()}
    quarantines = {c: quarantine(v) for c, v in decided.about("quarantined", "proposed").items()}
    return evicted, quarantines
