"""The figures of a run: evictions and their rounds, excluded updates, and the final accuracy."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.figures.client_metrics import sides
from rampart_fl.shared.figures.final import final_figures
from rampart_fl.shared.protocol.messages import RoundRecord

SILENCED = ("rejected", "abstained", "quarantined", "proposed")
"""Decisions that exclude an update from a round, but do not evict its client."""
ACCURACIES = {"received": "customized", "local": "local", "personal": "personalized"}
"""Name of each accuracy in the final figures, keyed by its name in the report."""


def figures(
    experiment: Experiment, records: Sequence[RoundRecord], evicted: Sequence[str]
) -> dict[str, Any]:
    """The figures of one run.

    Args:
        experiment: the experiment that ran.
        records: the records of its rounds.
        evicted: clients that are evicted at the end.

    A client's own rounds are those in which it took part or got a verdict. `honest_asked` counts
    the honest clients that a detector asked to evict in any round, evicted or not. `silenced`
    counts the honest clients' rejected updates, out of `client_rounds`; updates that a round only
    examines are not among them, but in `examined`. `hostile_excluded` counts the attackers'
    updates that are not accepted, out of `hostile_rounds`, in the same way. `waiting` counts the
    attackers that are not evicted, although the evidence in their latest verdict is above the
    limit.
    """
    honest, hostile = sides(experiment)
    final = final_figures(experiment, [record.metrics for record in records], evicted)
    own: Counter[str] = Counter()
    silenced: Counter[str] = Counter()
    excluded: Counter[str] = Counter()
    examined: Counter[str] = Counter()
    latest: dict[str, bool] = {}
    asked: set[str] = set()
    evictions: list[dict[str, Any]] = []
    for record in records:
        judged = {verdict.client: verdict for verdict in record.verdicts}
        own.update({*record.participants, *judged})
        examined.update(record.examined)
        for client, verdict in judged.items():
            if client not in record.examined:
                silenced[client] += verdict.decision in SILENCED
                excluded[client] += verdict.decision != "accepted"
            latest[client] = verdict.threshold is not None and verdict.evidence > verdict.threshold
            if "evicted" in (verdict.decision, verdict.asked):
                asked.add(client)
            if verdict.decision == "evicted":
                evictions.append(
                    {
                        "client": client,
                        "hostile": client in hostile,
                        "round": record.round,
                        "own": own[client],
                        "reason": verdict.reason,
                    }
                )
    counted = {client: own[client] - examined[client] for client in honest}
    return {
        "rounds": len(records),
        "failed_rounds": sum(record.status == "failed" for record in records),
        "honest": len(honest),
        "hostile": len(hostile),
        "honest_evicted": len(set(honest) & {one["client"] for one in evictions}),
        "honest_asked": len(asked.intersection(honest)),
        "fnr": len(set(hostile) - set(evicted)) / len(hostile) if hostile else None,
        "evictions": evictions,
        "hostile_rounds": sum(own[client] - examined[client] for client in hostile),
        "hostile_excluded": sum(excluded[client] for client in hostile),
        "waiting": sum(latest.get(client, False) for client in set(hostile) - set(evicted)),
        "client_rounds": sum(counted.values()),
        "examined": sum(examined[client] for client in honest),
        "silenced": sum(silenced[client] for client in honest),
        "worst_silenced": max(
            (silenced[client] / n for client, n in counted.items() if n), default=0.0
        ),
        **{name: final[f"accuracy_{kind}"] for name, kind in ACCURACIES.items()},
    }
