"""The messages with which the aggregator stores and sends the records of finished rounds."""

from pydantic import Field

from rampart_fl.shared.experiment.eviction import Decision
from rampart_fl.shared.protocol.messages import Digest, Message, RoundFacts


class StoredRound(RoundFacts):
    """The record of a finished round as it is stored and sent."""

    mixing_digest: Digest | None = Field(
        default=None, description="of the customizing weights, if there are any"
    )


class RoundPage(StoredRound):
    """The record of a finished round, with only the verdicts that the request asks for."""

    matching: int = Field(description="verdicts that match the filters, on all pages")


VERDICT_CODES: dict[Decision, str] = {
    "accepted": "a",
    "rejected": "r",
    "abstained": "b",
    "quarantined": "q",
    "proposed": "p",
    "evicted": "e",
}
"""The letter of each decision in a `VerdictMatrix`."""
NO_VERDICT = "."
"""The letter in a `VerdictMatrix` for a client that has no verdict in a round."""


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
