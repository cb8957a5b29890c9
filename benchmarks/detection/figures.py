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
    the honest clients that a detector asked to evict in any round, evicted or not.
    """
    honest, hostile = sides(experiment)
    final = final_figures(experiment, [record.metrics for record in records], evicted)
    own: Counter[str] = Counter()
    silenced: Counter[str] = Counter()
    asked: set[str] = set()
    evictions: list[dict[str, Any]] = []
    for record in records:
        judged = {verdict.client: verdict for verdict in record.verdicts}
        own.update({*record.participants, *judged})
        for client, verdict in judged.items():
            silenced[client] += verdict.decision in SILENCED
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
    return {
        "rounds": len(records),
        "failed_rounds": sum(record.status == "failed" for record in records),
        "honest": len(honest),
        "hostile": len(hostile),
        "honest_evicted": len(set(honest) & {one["client"] for one in evictions}),
        "honest_asked": len(asked.intersection(honest)),
        "fnr": len(set(hostile) - set(evicted)) / len(hostile) if hostile else None,
        "evictions": evictions,
        "client_rounds": sum(own[client] for client in honest),
        "silenced": sum(silenced[client] for client in honest),
        "worst_silenced": max(
            (silenced[client] / own[client] for client in honest if own[client]), default=0.0
        ),
        **{name: final[f"accuracy_{kind}"] for name, kind in ACCURACIES.items()},
    }
