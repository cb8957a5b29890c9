"""Compares whole runs: the metrics of each run, and the settings in which experiments differ.

Metrics are computed from one round's record at a time, so memory use does not grow with the number
of rounds.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.figures.client_metrics import (
    KINDS,
    accuracy,
    accuracy_figures,
    error_figures,
)
from rampart_fl.shared.figures.final import detection
from rampart_fl.shared.figures.run_result import DetectionIfAttacked, RunFigures
from rampart_fl.shared.protocol.messages import RoundRecord


def run_figures(
    experiment: Experiment,
    records: Iterable[RoundRecord],
    slots: Mapping[str, int],
    evicted: Collection[str],
    seconds: float | None = None,
) -> RunFigures:
    """The metrics of a run.

    Accuracies and errors are computed from the newest measurements of each honest client. A client
    is honest unless the experiment places an attacker in its slot. An accuracy is the fraction of
    all honest clients' test samples that are classified correctly. `bytes_per_client` is averaged
    over clients and rounds.

    Args:
        experiment: the experiment of the run.
        records: the records of the run's rounds, in order.
        slots: the slots of the run's clients, keyed by client.
        evicted: the clients that were evicted.
        seconds: the duration of the run; None if the run has not started.
    """
    newest: dict[str, dict[str, float]] = {}
    rounds = failed = 0
    sizes: dict[str, list[int]] = {"down": [0, 0], "up": [0, 0]}
    for record in records:
        rounds, failed = rounds + 1, failed + (record.status == "failed")
        for client, metrics in record.metrics.items():
            newest.setdefault(client, {}).update(metrics)
        for way, by_client in (("down", record.bytes_down), ("up", record.bytes_up)):
            sizes[way][0] += sum(by_client.values())
            sizes[way][1] += len(by_client)
    roles = experiment.roles
    hostile = {c for c, slot in slots.items() if slot < len(roles) and roles[slot] is not None}
    honest = [client for client in slots if client not in hostile]
    shares = {kind: accuracy(newest, honest, kind) for kind in KINDS}
    per_client = {way: total / n if n else None for way, (total, n) in sizes.items()}
    judged: DetectionIfAttacked = {**detection(honest, hostile, evicted)} if hostile else {}
    return {
        "experiment": experiment.name,
        "experiment_digest": experiment.digest(),
        "clients": len(slots),
        "rounds": rounds,
        "failed_rounds": failed,
        **accuracy_figures(shares),
        **error_figures(newest, honest),
        **judged,
        "evicted": sorted(evicted),
        "bytes_per_client": {"down": per_client["down"], "up": per_client["up"]},
        "bytes": sum(total for total, _ in sizes.values()),
        "seconds": seconds,
    }


def differences(tables: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The values of each setting in which experiments differ, keyed by the setting's path.

    The member spec of a rule, a model or another member counts as a single setting.

    >>> differences([{"seed": 1, "data": {"clients": 4}}, {"seed": 2, "data": {"clients": 4}}])
    {'seed': [1, 2]}
    """
    flat = [dict(_settings(table)) for table in tables]
    paths = dict.fromkeys(path for one in flat for path in one)
    rows = {path: [one.get(path) for one in flat] for path in paths}
    return {path: row for path, row in rows.items() if any(value != row[0] for value in row)}


def _settings(table: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        at = f"{path}.{key}" if path else key
        if isinstance(value, Mapping) and "name" not in value:
            yield from _settings(value, at)
        else:
            yield at, value
