"""The state of an open round, and the record that is made of it when it ends."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rampart_fl.services.aggregator.state.redis_records import Brief
from rampart_fl.services.aggregator.state.snapshot import Snapshot
from rampart_fl.services.aggregator.worker.round_engine import Decided
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.protocol.messages import Receipt, RoundRecord, VerdictRecord


@dataclass
class OpenRound:
    """The worker's knowledge about the open round; rebuilt from events after a restart."""

    number: int
    selected: set[str]
    receipts: dict[str, Receipt] = field(default_factory=dict)
    """The update that arrived from each client in this round, by client."""
    probed: dict[str, int] = field(default_factory=dict)
    """Size in bytes of each answer to a probe, by client."""
    evicted: set[str] = field(default_factory=set)
    """Clients that lost their ticket by eviction. The round does not wait for them, even if they
    are reinstated."""
    waiting: list[str] = field(default_factory=list)
    """Clients that asked for a ticket and get it when the next round opens (buffered policy)."""
    uploads: set[str] = field(default_factory=set)
    """Digests of blobs that are not needed after this round."""
    stale: bool = True
    """Whether the federation's status or the evictions may have changed since they were read."""
    loading: float = 0.0
    """Seconds spent reading updates while the round was open."""


def published(
    experiment: Experiment,
    federation: Brief,
    opened: OpenRound,
    receipts: Mapping[str, Receipt],
    before: Snapshot,
    decided: Decided,
    now: float,
) -> RoundRecord:
    """The record of a published round.

    Args:
        experiment: the experiment that is run.
        federation: the federation's small fields.
        opened: the round.
        receipts: the updates that were aggregated, by client.
        before: the snapshot with which the round began.
        decided: the outcome.
        now: Unix time at which the round closed.
    """
    arrived = {c: opened.receipts[c] for c in sorted(receipts) if c in opened.receipts}
    waited_for = set() if experiment.policy == "buffered" else opened.selected

    def given(client: str) -> int:
        """Number of models a client was given: those of its ticket, and the one for its probe."""
        return len(set(before.handed(client).values())) + (client in opened.probed)

    steps = {**decided.timings, "load": opened.loading + decided.timings["load"]}
    return RoundRecord(
        round=opened.number,
        status="published",
        policy=experiment.policy,
        participants=sorted(receipts),
        missing=sorted(waited_for - receipts.keys()),
        **vars(decided.record),
        staleness={client: opened.number - r.round for client, r in receipts.items()},
        metrics={client: r.metrics for client, r in receipts.items()},
        probed=sorted(opened.probed),
        models={
            "global": decided.snapshot.global_model,
            "reference": decided.snapshot.reference,
        },
        customized=decided.snapshot.customized,
        opened_at=federation.opened_at,
        closed_at=now,
        bytes_down={client: given(client) * decided.model_bytes for client in arrived},
        bytes_up={client: r.size + opened.probed.get(client, 0) for client, r in arrived.items()},
        timings={"collect": now - federation.opened_at - sum(decided.timings.values()), **steps},
    )


def failed(
    experiment: Experiment, federation: Brief, opened: OpenRound, reason: str, now: float
) -> RoundRecord:
    """The record of a round that failed."""
    return RoundRecord(
        round=federation.round,
        status="failed",
        reason=reason,
        policy=experiment.policy,
        participants=sorted(opened.receipts),
        missing=sorted(opened.selected - opened.receipts.keys()),
        metrics={client: opened.receipts[client].metrics for client in sorted(opened.receipts)},
        opened_at=federation.opened_at,
        closed_at=now,
    )


def why_barred(
    experiment: Experiment, decided: Decided, round_: int, now: float
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """The evidence to store about the clients that this round bars, by client id.

    Returns:
        The clients that are evicted, and those that are quarantined.
    """

    def why(verdict: VerdictRecord) -> dict[str, Any]:
        evidence = verdict.model_dump(
            include={"reason", "detector", "score", "threshold", "evidence"}
        )
        return {**evidence, "round": round_, "at": now}

    def quarantine(verdict: VerdictRecord) -> dict[str, Any]:
        kind = "proposal" if verdict.decision == "proposed" else "quarantine"
        until = experiment.server.eviction.until(verdict.decision, round_)
        return {**why(verdict), "kind": kind, "until": until}

    evicted = {c: why(v) for c, v in decided.about("evicted").items()}
    away = {c: quarantine(v) for c, v in decided.about("quarantined", "proposed").items()}
    return evicted, away
