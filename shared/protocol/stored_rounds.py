"""The messages in which the aggregator stores and sends the records of finished rounds."""

from typing import Literal

from pydantic import Field

from rampart_fl.shared.experiment.eviction import Decision
from rampart_fl.shared.protocol.messages import Digest, Message, RoundFacts, VerdictRecord


class StoredRound(RoundFacts):
    """The record of a finished round as it is stored and sent."""

    mixing_digest: Digest | None = Field(
        default=None, description="digest of the customizing weights, if there are any"
    )


class RoundPage(StoredRound):
    """The record of a finished round, with only the verdicts that the request asks for."""

    matching: int = Field(description="number of verdicts that match the filters, on all pages")


VERDICT_CODES: dict[Decision, str] = {
    "accepted": "a",
    "rejected": "r",
    "abstained": "b",
    "quarantined": "q",
    "proposed": "p",
    "evicted": "e",
}
"""The letter of each decision in a `VerdictMatrix`."""
ABSENT = "-"
"""The letter in a `VerdictMatrix` for a client that sent no update."""
LATE = "l"
"""The letter in a `VerdictMatrix` for a client whose update came after the end of the round."""
ROUND_FAILED = "x"
"""The letter in a `VerdictMatrix` for a client that took part in a round that failed."""
NO_VERDICT = "."
"""The letter in a `VerdictMatrix` for a client that took no part in a round."""


class VerdictMatrix(Message):
    """The verdicts on all clients in a range of rounds, with one cell per client and round."""

    clients: list[str] = Field(description="one row each")
    rounds: list[int] = Field(description="finished rounds, one column each")
    decisions: list[str] = Field(
        description="for each client, one letter per round: "
        + ", ".join(f"`{code}` {decision}" for decision, code in VERDICT_CODES.items())
        + f", `{ABSENT}` if the client sent no update, `{LATE}` if the update came too late, "
        f"`{ROUND_FAILED}` if the round failed, `{NO_VERDICT}` if the client took no part"
    )
    scores: str = Field(
        description="the scores with three digits, as base64 of little-endian float32, row by row; "
        "NaN if there is no score"
    )


class ClientFigures(Message):
    """What one client did in one round, and the decision about it."""

    verdict: VerdictRecord | None = None
    absent: bool = Field(default=False, description="true if no update arrived in time")
    late: bool = Field(default=False, description="whether an update arrived too late")
    weight: float | None = Field(
        default=None, description="coefficient of the update in the rule's result"
    )
    norm: float | None = Field(default=None, description="norm of the calibrated update")
    staleness: int | None = Field(default=None, description="age of the starting model, in rounds")
    metrics: dict[str, float] = Field(default={}, description="what the client measured")


class RoundFigures(Message):
    """A summary of a finished round, which is much smaller than the round's record."""

    round: int
    status: Literal["published", "failed"]
    seconds: float = Field(description="seconds from the opening of the round to its end")
    participants: int
    absent: int = Field(description="clients whose update did not arrive in time")
    late: int = Field(default=0, description="absent clients that uploaded too late")
    decisions: dict[Decision, int] = Field(description="number of verdicts of each kind")
    accuracies: dict[str, float] = Field(
        description="accuracies over all clients: `customized` for the received models, `local` "
        "for the models after training, `personalized` for the personal models",
        examples=[{"customized": 0.93, "local": 0.95}],
    )
    norm_median: float | None = Field(default=None, description="median norm of the updates")
    norm_mad: float | None = Field(
        default=None, description="median absolute deviation from the median norm"
    )
    client: ClientFigures | None = Field(
        default=None, description="the figures of one client, if the request names a client"
    )
