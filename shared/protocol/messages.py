"""The messages of the HTTP API, version 1, as pydantic models, which refuse unknown keys."""

import hashlib
import json
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from rampart_fl.shared.experiment.eviction import Decision, Mode, RequestedDecision
from rampart_fl.shared.experiment.membership import LabelKey, LabelValue
from rampart_fl.shared.experiment.schema import RoundPolicy
from rampart_fl.shared.experiment.start import RUN_ID
from rampart_fl.shared.protocol.client_ids import check_unreserved
from rampart_fl.shared.protocol.counts import MOST_SAMPLES, check_counts
from rampart_fl.shared.protocol.reasons import NO_REASON, Reason

CLIENT_ID = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
DIGEST = r"^[0-9a-f]{64}$"

ClientId = Annotated[str, Field(pattern=CLIENT_ID, examples=["client-07"])]
NewClientId = Annotated[ClientId, AfterValidator(check_unreserved)]
Digest = Annotated[
    str,
    Field(
        pattern=DIGEST,
        description="SHA-256 of the bytes, in hexadecimal",
        examples=["5f" * 32],
    ),
]
MetricName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
LARGEST = 1e15
"""The largest absolute value that a metric may have."""
Labels = Annotated[
    dict[LabelKey, LabelValue],
    Field(
        max_length=16,
        description="labels by which a run selects clients",
        examples=[{"site": "eu"}],
    ),
]
LABELS: dict[str, str] = {}
"""The default value of the field `labels`: the client has no labels."""
Metric = Annotated[float, Field(strict=True, ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]
MOST_METRICS = 64
Metrics = Annotated[
    dict[MetricName, Metric],
    Field(max_length=MOST_METRICS, examples=[{"test_samples": 20, "correct_local": 19}]),
    AfterValidator(check_counts),
]


class Message(BaseModel):
    """Base of all messages."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ClientReport(Message):
    """What a client reports about its local training, in the metadata of its upload.

    The aggregator checks every report. The sample count must not exceed the client's cap. Metrics
    must be finite and between -1e15 and 1e15, and counts must be possible (see `protocol.counts`).
    """

    samples: int = Field(
        strict=True, ge=1, le=MOST_SAMPLES, description="training samples; at most the client's cap"
    )
    metrics: Metrics = {}
    diverged: bool = Field(
        default=False,
        description="whether training diverged, that is, gave numbers that are not finite; the "
        "uploaded update is then zero, and is rejected",
    )


class Evaluation(Message):
    """What a client measured on its own test data with the final models."""

    metrics: Metrics = {}


RunId = Annotated[str, Field(pattern=RUN_ID, examples=["digits-benign-1"])]
RunState = Literal["queued", "running", "paused", "stopping", "finished", "failed", "cancelled"]
TicketKind = Literal["offer", "train", "probe", "evaluate", "wait", "done", "evicted"]


class Ticket(Message):
    """A client's current task, given by `kind`.

    - `offer`: read the run's experiment, and accept or decline to take part.
    - `train`: train from the ticket's model and upload an update.
    - `probe`: train from the reference model and upload an update. From this update, the server
    determines which other clients are similar to this client.
    - `evaluate`: evaluate the final models.
    - `wait`: do nothing for now.
    - `done`: the run has ended.
    - `evicted`: the client is barred from the run. If the ticket names no run, the client is barred
    from the federation.
    """

    run: str = Field(
        default="", description="the run that the ticket is about; empty if there is none"
    )
    round: int = Field(default=0, ge=0)
    kind: TicketKind
    slot: int | None = Field(default=None, description="the client's slot in the run")
    models: dict[str, Digest] = Field(
        default={},
        description="digests: `model` is the model to train from or to evaluate, `peer_00` and so "
        "on are models of other clients, and `vote_00` and so on are models that vote",
    )
    deadline: float | None = Field(default=None, description="Unix time at which the round closes")
    experiment: Digest | None = None
    reason: str = ""

    @property
    def etag(self) -> str:
        """The ticket's ETag, for comparison with `If-None-Match`; `deadline` does not affect it."""
        parts = [self.run, self.round, self.kind, sorted(self.models.items()), self.experiment]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


class Receipt(Message):
    """Proof that an upload is durable; uploading the same bytes again gives the same receipt."""

    round: int
    kind: Literal["update", "probe", "evaluation"]
    client: ClientId
    digest: Digest
    samples: int = 0
    metrics: dict[str, float] = {}
    started: Digest | None = Field(default=None, description="digest of the starting model")
    closing_round: int | None = Field(default=None, description="round that was open at the upload")
    size: int = 0
    diverged: bool = False


class JoinRequest(Message):
    """A new client's request to join, with the join token in the Authorization header.

    The client generates its own token and sends only the token's hash, so nobody else ever knows
    the token. If the answer is lost, the client can safely repeat the request.
    """

    token_hash: Digest
    client_id: NewClientId | None = Field(
        default=None,
        description="requested id; ignored if the token is bound to an id",
        examples=["client-07"],
    )


class TokenChange(Message):
    """The hash of a client's new token; the old token becomes invalid immediately.

    `reason` is used only if an operator replaces the token, not if the client replaces it.
    """

    token_hash: Digest
    reason: Reason = Field(default=NO_REASON, examples=["the old token was lost"])


class Joined(Message):
    """A client's id, its limit on claimed samples, and its token's expiry time."""

    client_id: ClientId
    sample_cap: int | None = Field(
        default=None, description="limit on claimed samples; None if each run sets the limit"
    )
    expires_at: float


RequestKey = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9_-]{43,128}$",
        description="a random secret; a repeated request with the same key makes the same tokens",
    ),
]


class JoinTokenRequest(Message):
    """An operator's request for join tokens; each token admits one client."""

    count: int = Field(default=1, ge=1, le=10_000, examples=[2])
    lifetime: float = Field(
        default=86_400, gt=0, le=31_536_000, description="seconds", examples=[3600]
    )
    client_ids: list[NewClientId] | None = Field(
        default=None,
        min_length=1,
        description="ids to which the tokens are bound, one id per token",
        examples=[["client-07", "client-08"]],
    )
    sample_cap: int | None = Field(
        default=None,
        ge=1,
        le=10**9,
        description="maximum sample count that a client may claim",
        examples=[5000],
    )
    labels: Labels = LABELS
    reason: Reason = Field(default=NO_REASON, examples=["two new hospitals"])
    key: RequestKey | None = Field(default=None, examples=[None])


class LabelChange(Message):
    """A client's new labels, which replace its current labels."""

    labels: Labels
    reason: Reason = Field(default=NO_REASON, examples=["the site moved"])


class JoinTokens(Message):
    """New join tokens, which are shown only once."""

    tokens: list[str]
    expires_at: float


class ReasonBody(Message):
    """The body of a request that contains only an operator's reason."""

    reason: Reason = NO_REASON


class ModeChange(Message):
    """An operator's change of a run's mode: the most severe decision that the run may take."""

    mode: Mode = Field(examples=["quarantine"])
    reason: Reason = Field(default=NO_REASON, examples=["no evictions before the audit"])


class Health(Message):
    """The health of a federation's components, as seen by the process that answers the request."""

    redis: str = Field(default="", description="the problem with Redis; empty if there is none")
    blobs: str = Field(default="", description="the problem with the blobs; empty if there is none")
    worker: str | None = Field(
        default=None,
        description="name of the worker that holds the lease; None if no worker holds it",
    )


class VerdictRecord(Message):
    """The decision about one client in one round, with the evidence for this decision."""

    client: str
    decision: Decision
    asked: RequestedDecision | None = Field(
        default=None,
        description="the decision that the detector asked for, if the final decision differs",
    )
    detector: str
    score: float | None
    threshold: float | None
    evidence: float = 0.0
    reason: str


class StageReport(Message):
    """What one stage of a round measured; values that are not finite are stored as None."""

    stage: str
    values: dict[str, int | float | str | None] = Field(default={}, description="totals by name")
    per_row: dict[str, dict[str, int | float | None]] = Field(
        default={}, description="columns by name; each column maps clients to numbers"
    )


class RoundFacts(Message):
    """All facts about a finished round, except the mixing weights of its models.

    Repeating an experiment gives the same facts, except for times and `timings`.
    """

    round: int
    status: Literal["published", "failed"]
    reason: str = ""
    policy: RoundPolicy = "sync"
    participants: list[str] = []
    missing: list[str] = []
    late: list[str] = Field(default=[], description="clients in `missing` that uploaded too late")
    examined: list[str] = Field(
        default=[],
        description="summoned clients; the round judged their uploads, but did not aggregate them",
    )
    quarantined: list[str] = Field(
        default=[], description="clients in quarantine before the decision"
    )
    mode: Mode | None = Field(default=None, description="most severe decision allowed")
    verdicts: list[VerdictRecord] = []
    weights: dict[str, float] = Field(
        default={}, description="coefficient of each update in the rule's result"
    )
    assignment: dict[str, list[str]] = Field(
        default={},
        description="names of each client's models, keyed by client; clients with only their own "
        "model are left out",
    )
    norms: dict[str, float] = Field(default={}, description="norms of the calibrated updates")
    staleness: dict[str, int] = {}
    metrics: dict[str, dict[str, float]] = {}
    tested: dict[str, float] = Field(
        default={}, description="metrics of the new global model on the server's test samples"
    )
    probed: list[str] = []
    reports: list[StageReport] = Field(default=[], description="what each stage measured")
    models: dict[str, str] = Field(default={}, description="digests: global, reference")
    customized: dict[str, str] = Field(
        default={},
        description="digests of the models other than the global and the reference model; each key "
        "is a client's id or a name with a colon",
    )
    opened_at: float = 0.0
    closed_at: float = 0.0
    timings: dict[str, float] = Field(default={}, description="seconds by step")
    bytes_down: dict[str, int] = Field(default={}, description="bytes of models sent, by client")
    bytes_up: dict[str, int] = Field(default={}, description="bytes of uploads, by client")
    warnings: list[str] = Field(default=[], description="reasons not to trust this federation")

    @property
    def models_by_name(self) -> dict[str, str]:
        """Digests of the global model and of the models in `customized`, keyed by name.

        The name `global` means the global model even if a client has this id.
        """
        return {**self.customized, "global": self.models.get("global", "")}


class RoundRecord(RoundFacts):
    """All facts about a finished round, including the mixing weights of its models."""

    mixing: dict[str, dict[str, float]] = Field(default={}, description="customizing weights")


Phase = Literal["joining", "collecting", "aggregating", "failed", "published", "evaluating", "done"]
PHASES: tuple[Phase, ...] = get_args(Phase)
"""The phases of a run, in order. Every round goes through `collecting` and ends in `failed` or
`published`."""


class Problem(BaseModel):
    """RFC 9457 problem details."""

    type: str = Field(examples=["urn:rampart:late"])
    title: str
    status: int
    detail: str
    instance: str | None = None
