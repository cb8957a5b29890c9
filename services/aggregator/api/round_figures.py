"""Summarizes a round's record: a few metrics of the round, and one client's part in the round.

The record of a round with 1,000 clients takes hundreds of kilobytes; its summary takes a few
hundred bytes.
"""

import json
from collections import Counter
from statistics import median
from typing import Any, Literal, NotRequired, TypedDict

from rampart_fl.shared.figures.client_metrics import KINDS, accuracy
from rampart_fl.shared.protocol.messages import VerdictRecord
from rampart_fl.shared.protocol.stored_rounds import ClientFigures, RoundFigures


class RecordFields(TypedDict):
    """The fields of a round's record that `round_figures` reads.

    A record was validated before it was stored. To save time, `round_figures` does not validate the
    large record again; it validates only the summary.
    """

    round: int
    status: Literal["published", "failed"]
    opened_at: float
    closed_at: float
    participants: list[str]
    missing: list[str]
    late: NotRequired[list[str]]
    """Records of older versions lack this field: these versions did not store late clients."""
    verdicts: list[dict[str, Any]]
    weights: dict[str, float]
    norms: dict[str, float]
    staleness: dict[str, int]
    metrics: dict[str, dict[str, float]]


def round_figures(record: bytes, client: str | None = None) -> RoundFigures:
    """The summary of a round.

    Args:
        record: the round's record, which is a `StoredRound` as JSON.
        client: a client; the summary includes the figures of this client. None to include no
            client's figures.
    """
    fields: RecordFields = json.loads(record)
    metrics, norms = fields["metrics"], list(fields["norms"].values())
    shares = {kind: accuracy(metrics, metrics, kind) for kind in KINDS}
    middle = median(norms) if norms else None
    return RoundFigures(
        round=fields["round"],
        status=fields["status"],
        seconds=max(0.0, fields["closed_at"] - fields["opened_at"]),
        participants=len(fields["participants"]),
        absent=len(fields["missing"]),
        late=len(fields.get("late", ())),
        decisions=dict(Counter(verdict["decision"] for verdict in fields["verdicts"])),
        accuracies={kind: share for kind, share in shares.items() if share is not None},
        norm_median=middle,
        norm_mad=None if middle is None else median(abs(norm - middle) for norm in norms),
        client=None if client is None else client_figures(fields, client),
    )


def client_figures(fields: RecordFields, client: str) -> ClientFigures:
    """What one client did in a round, from the fields of the round's record."""
    verdicts = (
        VerdictRecord.model_validate(verdict, extra="ignore")
        for verdict in fields["verdicts"]
        if verdict["client"] == client
    )
    return ClientFigures(
        verdict=next(verdicts, None),
        absent=client in fields["missing"],
        late=client in fields.get("late", ()),
        weight=fields["weights"].get(client),
        norm=fields["norms"].get(client),
        staleness=fields["staleness"].get(client),
        metrics=fields["metrics"].get(client, {}),
    )
