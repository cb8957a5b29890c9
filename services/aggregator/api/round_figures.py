"""Summarizes a round's record: a few metrics of the round, and what one client did in it.

The record of a round with 1,000 clients takes hundreds of kilobytes; its summary takes a few
hundred bytes.
"""

import json
from collections import Counter
from statistics import median
from typing import Any

from rampart_fl.shared.figures.final import KINDS, accuracy
from rampart_fl.shared.protocol.stored_rounds import ClientFigures, RoundFigures


def round_figures(record: bytes, client: str | None = None) -> RoundFigures:
    """The summary of a round.

    Args:
        record: the round's record: a `StoredRound` as JSON.
        client: a client whose figures the summary includes; None to include no client's figures.
    """
    facts: dict[str, Any] = json.loads(record)
    metrics, norms = facts["metrics"], list(facts["norms"].values())
    shares = {kind: accuracy(metrics, metrics, kind) for kind in KINDS}
    middle = median(norms) if norms else None
    return RoundFigures(
        round=facts["round"],
        status=facts["status"],
        seconds=max(0.0, facts["closed_at"] - facts["opened_at"]),
        participants=len(facts["participants"]),
        absent=len(facts["missing"]),
        late=len(facts.get("late", ())),
        decisions=dict(Counter(verdict["decision"] for verdict in facts["verdicts"])),
        accuracies={kind: share for kind, share in shares.items() if share is not None},
        norm_median=middle,
        norm_mad=None if middle is None else median(abs(norm - middle) for norm in norms),
        client=None if client is None else client_figures(facts, client),
    )


def client_figures(facts: dict[str, Any], client: str) -> ClientFigures:
    """What one client did in a round, from the fields of the round's record."""
    verdicts = (verdict for verdict in facts["verdicts"] if verdict["client"] == client)
    return ClientFigures(
        verdict=next(verdicts, None),
        absent=client in facts["missing"],
        late=client in facts.get("late", ()),
        weight=facts["weights"].get(client),
        norm=facts["norms"].get(client),
        staleness=facts["staleness"].get(client),
        metrics=facts["metrics"].get(client, {}),
    )
