"""The messages of the HTTP API, version 1, as pydantic models, which refuse unknown keys."""

import hashlib
import json
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from rampart_fl.shared.experiment.eviction import Asked, Mode
from rampart_fl.shared.experiment.eviction import Decision as Outcome

CLIENT_ID = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
DIGEST = r"^[0-9a-f]{64}$"

ClientId = Annotated[str, Field(pattern=CLIENT_ID, examples=["client-07"])]
Digest = Annotated[str, Field(pattern=DIGEST, description="SHA-256 of the bytes, in hexadecimal")]
MetricName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
LARGEST = 1e15
"""The largest absolute value that a metric may have."""
Metric = Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]


class Message(BaseModel):
    """Base of all messages."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Report(Message):
    """What a client reports about its local training, in the metadata of its upload.

    The aggregator accepts a report only within bounds: the sample count may not exceed the
    operator's cap, and all numbers must be finite.
    """

    samples: int = Field(ge=1, le=10**9, description="training samples; at most the client's cap")
    metrics: dict[MetricName, Metric] = Field(
        default={}, max_length=64, examples=[{"test_samples": 20, "correct_local": 19}]
    )
    diverged: bool = Field(
        default=False,
        description="training came to numbers that are not finite; zeros stand in for the update, "
        "which is rejected",
    )


class Evaluation(Message):
    """What a client measured on its own test data with the final models."""

    metrics: dict[MetricName, Metric] = Field(default={}, max_length=64)


TicketKind = Literal["train", "probe", "evaluate", "wait", "done", "evicted"]


class Ticket(Message):
    """What a client is to do now, depending on `kind`.

    - `train`: train from the model and upload an update.
    - `probe`: do the same from the reference model, so that the server can tell which other clients
      this one resembles.
    - `evaluate`: measure the final models.
    - `wait`: do nothing for now.
    - `done`: stop, because the federation has ended.
    - `evicted`: stop, because the client is barred for good.
    """

    round: int = Field(ge=0)
    kind: TicketKind
    models: dict[str, Digest] = Field(
        default={},
        description="digests: `model` to start from or to measure; `peer_00` and so on, models of "
        "others to weigh; `vote_00` and so on, models that decide together",
    )
    deadline: float | None = Field(default=None, description="Unix time at which the round closes")
    experiment: Digest
    reason: str = ""

    @property
    def etag(self) -> str:
        """The ETag to compare with `If-None-Match`; a ticket's deadline does not affect it."""
        parts = [self.round, self.kind, sorted(self.models.items()), self.experiment]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


class Receipt(Message):
    """Proof that an upload is durable; uploading the same bytes again gives the same receipt."""

    round: int
    kind: Literal["update", "probe", "evaluation"]
    client: ClientId
    digest: Digest
    samples: int = 0
    metrics: dict[str, float] = {}
    started: Digest | None = Field(default=None, description="digest of the model trained from")
    closing_round: int | None = Field(default=None, description="round open when it arrived")
    size: int = 0
    diverged: bool = False


class JoinRequest(Message):
    """A new client's request to join, with the join token in the Authorization header.

    The client makes its own token and sends only the token's hash. Repeating the request after a
    lost answer is therefore idempotent, and only the client ever has the token.
    """

    token_hash: Digest
    client_id: ClientId | None = Field(
        default=None, description="wished id; a token bound to an id gives that one"
    )


class TokenChange(Message):
    """The hash of a client's new token; the old token becomes invalid at once."""

    token_hash: Digest


class Joined(Message):
    """A client's id, the samples that it may claim, and when its token expires."""

    client_id: ClientId
    sample_cap: int
    expires_at: float


class JoinTokenRequest(Message):
    """An operator's request for join tokens; each token admits one client."""

    count: int = Field(default=1, ge=1, le=10_000)
    lifetime: float = Field(default=86_400, gt=0, le=31_536_000, description="seconds")
    client_ids: list[ClientId] | None = Field(
        default=None, min_length=1, description="bind the tokens to these ids, one each"
    )
    sample_cap: int | None = Field(
        default=None, ge=1, le=10**9, description="the most samples these clients may claim"
    )


class JoinTokens(Message):
    """New join tokens, shown once."""

    tokens: list[str]
    expires_at: float


class ClientInfo(Message):
    """A client as operators see it."""

    client_id: ClientId
    registered_at: float
    sample_cap: int
    last_seen: float | None
    online: bool
    evicted: bool
    eviction: dict[str, Any] | None = None
    quarantine: dict[str, Any] | None = Field(
        default=None, description="why it is out for some rounds, and until which one"
    )
    ticket: Ticket | None = None


class Decision(Message):
    """An operator's decision about a client."""

    reason: str = Field(default="operator's decision", max_length=500)


class ModeChange(Message):
    """An operator's decision how far decisions about clients may go from now on."""

    mode: Mode
    reason: str = Field(default="operator's decision", max_length=500)


class Proposal(Message):
    """An eviction that waits for an operator's decision; until then, the client is quarantined."""

    client_id: ClientId
    reason: str
    detector: str
    score: float | None
    threshold: float | None
    evidence: float
    round: int
    until: int = Field(description="round with which it is dismissed, if nobody decides")
    at: float


class VerdictRecord(Message):
    """The decision about one client in one round, with its evidence."""

    client: str
    decision: Outcome
    asked: Asked | None = Field(
        default=None, description="what the detector asked for, where something else was done"
    )
    detector: str
    score: float | None
    threshold: float | None
    evidence: float = 0.0
    reason: str


class RoundFacts(Message):
    """What is known about a finished round, but for the weights that mixed its models.

    Everything is reproducible, except for times and `timings`.
    """

    round: int
    status: Literal["published", "failed"]
    reason: str = ""
    policy: Literal["sync", "buffered"] = "sync"
    participants: list[str] = []
    missing: list[str] = []
    quarantined: list[str] = Field(default=[], description="barred for some rounds as it ended")
    mode: Mode | None = Field(default=None, description="how far its decisions might go")
    verdicts: list[VerdictRecord] = []
    weights: dict[str, float] = Field(default={}, description="share of each update in the rule")
    assignment: dict[str, list[str]] = Field(
        default={}, description="names of the models of clients that do not just get their own"
    )
    norms: dict[str, float] = Field(default={}, description="norms of the calibrated updates")
    staleness: dict[str, int] = {}
    metrics: dict[str, dict[str, float]] = {}
    probed: list[str] = []
    reports: list[dict[str, Any]] = Field(default=[], description="what each stage measured")
    models: dict[str, str] = Field(default={}, description="digests of global and reference")
    customized: dict[str, str] = Field(
        default={}, description="digests of the other models: by client, or by name with a colon"
    )
    opened_at: float = 0.0
    closed_at: float = 0.0
    timings: dict[str, float] = Field(default={}, description="seconds by step")
    bytes_down: dict[str, int] = Field(default={}, description="models that clients were given")
    bytes_up: dict[str, int] = Field(default={}, description="updates and probes of clients")
    warnings: list[str] = Field(default=[], description="why not to trust this federation")


class RoundRecord(RoundFacts):
    """All facts about a finished round."""

    mixing: dict[str, dict[str, float]] = Field(default={}, description="customizing weights")


class StoredRound(RoundFacts):
    """The record of a finished round as it is stored and sent."""

    mixing_digest: Digest | None = Field(
        default=None, description="of the customizing weights, if there are any"
    )


class RoundPage(StoredRound):
    """The record of a finished round, with the verdicts that were asked for."""

    matching: int = Field(description="verdicts that match the filters, on all pages")


VERDICT_CODES: dict[Outcome, str] = {
    "accepted": "a",
    "rejected": "r",
    "abstained": "b",
    "quarantined": "q",
    "proposed": "p",
    "evicted": "e",
}
"""The letter of each decision in a `VerdictMatrix`."""
NO_VERDICT = "."
"""Stands in a `VerdictMatrix` where a client has no verdict in a round."""


class VerdictMatrix(Message):
    """The verdicts on all clients in a range of rounds, with one cell per client and round."""

    clients: list[str] = Field(description="one row each")
    rounds: list[int] = Field(description="finished rounds, one column each")
    decisions: list[str] = Field(
        description="for each client, one letter per round: "
        + ", ".join(f"`{code}` {decision}" for decision, code in VERDICT_CODES.items())
        + f", `{NO_VERDICT}` no verdict"
    )
    scores: str = Field(
        description="base64 of little-endian float32, row by row: the scores with three digits; "
        "NaN where there is none"
    )


FederationState = Literal["running", "paused", "stopping", "finished"]
Phase = Literal["joining", "collecting", "aggregating", "failed", "published", "evaluating", "done"]
PHASES: tuple[Phase, ...] = get_args(Phase)
"""The phases, in the order in which a round goes through them."""


class FederationStatus(Message):
    """The federation's current status."""

    name: str
    experiment: Digest
    status: FederationState
    phase: Phase
    round: int
    rounds: int
    deadline: float | None = None
    clients: int = 0
    online: int = 0
    mode: Mode = "evict"
    evicted: list[str] = []
    quarantined: list[str] = Field(default=[], description="barred for some rounds")
    proposed: list[str] = Field(default=[], description="of these, waiting for an operator")
    abstained: list[str] = Field(
        default=[], description="left out of the last round alone: as many are barred as may be"
    )
    selected: list[str] = []
    received: list[str] = []
    probing: list[str] = []
    models: dict[str, str] = {}
    warnings: list[str] = []


class Problem(BaseModel):
    """RFC 9457 problem details."""

    type: str = Field(examples=["urn:rampart:late"])
    title: str
    status: int
    detail: str
    instance: str | None = None
