"""The messages about registered clients: who they are, and why they are barred.

If a client is barred, Redis stores the reason as a message of one of the classes in this module.
A stored reason does not name its class. The code that reads the reason recognizes the class by the
keys. Reasons therefore have no optional fields.
"""

from typing import Literal

from pydantic import Field

from rampart_fl.shared.protocol.messages import LABELS, ClientId, Labels, Message, VerdictRecord


class BarReason(Message):
    """Why a client is barred; the reason is a `Finding` if a detector barred the client."""

    reason: str
    detector: str = Field(description="detector that barred the client, or `operator`")
    at: float = Field(description="Unix time")


class Finding(BarReason):
    """Why a detector has barred a client in a round."""

    score: float | None
    threshold: float | None
    evidence: float
    round: int

    @staticmethod
    def of(verdict: VerdictRecord, round_: int, at: float) -> "Finding":
        """The finding that results from a verdict in a round; `at` is a Unix time."""
        return Finding(
            reason=verdict.reason,
            detector=verdict.detector,
            at=at,
            score=verdict.score,
            threshold=verdict.threshold,
            evidence=verdict.evidence,
            round=round_,
        )


class ConfirmedFinding(Finding):
    """Why a detector proposed to evict a client, and why an operator confirmed the proposal."""

    confirmed: str = Field(description="the operator's reason")


class Quarantine(Finding):
    """Why a client is barred for some rounds: it is in quarantine, or its eviction is proposed."""

    kind: Literal["quarantine", "proposal"]
    until: int = Field(description="first round in which the client may take part again")


Bar = ConfirmedFinding | Finding | BarReason
"""Why a client is barred from a run or the federation until an operator reinstates the client."""


class ClientInfo(Message):
    """A client as operators see it."""

    client_id: ClientId
    registered_at: float
    sample_cap: int | None = Field(
        default=None, description="limit on claimed samples; None if each run sets the limit"
    )
    labels: Labels = LABELS
    last_seen: float | None
    online: bool
    software: str = Field(
        default="", description="software that the client reports, such as `rampart-fl/0.1`"
    )
    barred: Bar | None = Field(default=None, description="why the client is barred from runs")
    token_expires_at: float | None = Field(
        default=None,
        description="Unix time at which the client's token expires; None if it is revoked",
    )


class Proposal(Finding):
    """An eviction that awaits an operator's decision; meanwhile, the client is quarantined."""

    client_id: ClientId
    until: int = Field(description="round in which the proposal is dismissed if nobody has decided")
