"""Copies a run to a tracker: a finished run at once, or a run in progress round by round."""

import json
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

from rampart_fl.services.console.display.progress import Progress
from rampart_fl.services.console.stored_run import MODELS_DIGESTS, FinishedRun
from rampart_fl.services.console.tracking.tracker import Tracker
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.eviction import BARRING
from rampart_fl.shared.figures.duration import seconds_of
from rampart_fl.shared.protocol.messages import RoundFacts
from rampart_fl.shared.runtime import durable


@dataclass(frozen=True)
class TrackedRound:
    """The part of a round that is copied to a tracker.

    Args:
        record: the round's record.
        curves: the accuracies and errors after the round, such as "accuracy_local".
        acts: events that barred or readmitted clients since the previous round, as text keyed by
            client.
    """

    record: RoundFacts
    curves: Mapping[str, float | None]
    acts: Mapping[str, str]


def track(run: FinishedRun, tracker: Tracker) -> None:
    """Copies a finished run: parameters, the metrics of each round, evictions, final models.

    Args:
        run: the run.
        tracker: an unused tracker.
    """

    def rounds() -> Iterator[TrackedRound]:
        with Progress("rounds tracked", len(run.records)) as progress:
            for number, record in enumerate(run.records):
                curves = {name: values[number] for name, values in run.curves.items()}
                yield TrackedRound(record, curves, {})
                progress.show(number + 1)

    begins = [record.opened_at for record in run.records if record.opened_at]
    began = min(begins, default=time.time())
    copy(run.experiment, rounds(), lambda _: run, tracker, began)


def copy(
    experiment: Experiment,
    rounds: Iterable[TrackedRound],
    finished: Callable[[Path], FinishedRun],
    tracker: Tracker,
    began: float,
) -> FinishedRun:
    """Copies each round as soon as it is available, and the final results after the run's end.

    Args:
        experiment: the run's experiment.
        rounds: yields the rounds until the run ends.
        finished: called after the run's end; returns the finished run. The argument is an empty
            folder in which `finished` can store the run.
        tracker: an unused tracker.
        began: Unix time at which the run began.
    """
    facts = {"experiment": experiment.name, "experiment_digest": experiment.digest()}
    tracker.begin(parameters(experiment.tables()), facts, began)
    now = time.time()  # A simulation records no times, so use the present time instead.
    try:
        for one in rounds:
            metrics, closed = round_metrics(one.record, one.curves), one.record.closed_at
            tracker.round(
                one.record.round, metrics, {**one.acts, **barrings(one.record)}, closed or now
            )
        with tempfile.TemporaryDirectory() as read, tempfile.TemporaryDirectory() as kept:
            run = finished(Path(read))
            known = {"evicted": " ".join(run.evicted) or "nobody"}
            known |= _models_digests(run)
            keep(run, Path(kept))
            ends = [record.closed_at for record in run.records if record.closed_at]
            tracker.end(numbers(run.figures), known, Path(kept), max(ends, default=now))
    except BaseException:
        tracker.fail()
        raise
    return run


def parameters(tables: Mapping[str, Any]) -> dict[str, str]:
    """The settings of an experiment as text, keyed by path.

    >>> parameters({"seed": 1, "data": {"dataset": {"name": "digits"}}, "attackers": []})
    {'seed': '1', 'data.dataset.name': 'digits', 'attackers': '[]'}
    """
    return dict(_settings(tables, ""))


def _settings(table: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from _settings(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value if isinstance(value, str) else json.dumps(value)


def round_metrics(record: RoundFacts, curves: Mapping[str, float | None]) -> dict[str, float]:
    """The metrics of a round: accuracies, counts of decisions, the median norm, and the duration.

    Args:
        record: the round.
        curves: the values of the run's curves after the round, such as "accuracy_local".
    """
    decisions = Counter(verdict.decision for verdict in record.verdicts)
    norms = list(record.norms.values())
    metrics: dict[str, float | None] = {
        **curves,
        **{f"verdicts_{decision}": float(count) for decision, count in decisions.items()},
        "updates": float(len(record.participants)),
        "examined": float(len(record.examined)),
        "late": float(len(record.late)),
        "absent": float(len(record.missing) - len(record.late)),
        "failed": float(record.status == "failed"),
        "median_norm": median(norms) if norms else None,
        "seconds": seconds_of(record) or None,
    }
    return {name: value for name, value in metrics.items() if value is not None and isfinite(value)}


def barrings(record: RoundFacts) -> dict[str, str]:
    """Why clients were barred in a round: the reasons, keyed by client."""
    return {
        v.client: f"{v.decision} in round {record.round} by {v.detector}: {v.reason}"
        for v in record.verdicts
        if v.decision in BARRING
    }


def numbers(figures: Mapping[str, Any]) -> dict[str, float]:
    """The final metrics that are finite numbers.

    >>> numbers({"accuracy": 0.5, "evicted": ["a"], "fnr": None, "rounds": 3})
    {'accuracy': 0.5, 'rounds': 3.0}
    """
    return {
        name: float(value)
        for name, value in figures.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    }


def keep(run: FinishedRun, folder: Path) -> None:
    """Copies a run's files and final models, with their provenance, to a folder."""
    for name in run.digests:
        shutil.copyfile(run.folder / name, folder / name)
    (folder / "models").mkdir()
    models = run.models
    for name, path in models.items():
        shutil.copyfile(path, folder / "models" / f"{quote(name, safe='')}.safetensors")
    provenance = {
        **run.provenance,
        "experiment": run.experiment.name,
        "experiment_digest": run.experiment.digest(),
        **_models_digests(run),
        "models": {name: run.model_digests[name] for name in models},
        "files": run.digests,
        "rounds": len(run.records),
        "evicted": run.evicted,
        "tracked_by": f"rampart-fl {version('rampart-fl')}",
    }
    durable.replace_text(folder / "provenance.json", json.dumps(provenance, indent=1) + "\n")


def _models_digests(run: FinishedRun) -> dict[str, str]:
    """Those digests of a run's final models that the run's final metrics contain."""
    return {name: str(run.figures[name]) for name in MODELS_DIGESTS if run.figures.get(name)}
