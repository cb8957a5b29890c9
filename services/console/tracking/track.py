"""Copies a finished run to a tracker."""

import json
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

from rampart_fl.services.console.finished import FinishedRun
from rampart_fl.services.console.progress import Progress
from rampart_fl.services.console.tracking.tracker import Tracker
from rampart_fl.shared.experiment.eviction import BARRING
from rampart_fl.shared.protocol.messages import RoundFacts


def track(run: FinishedRun, tracker: Tracker) -> None:
    """Copies a run: parameters, the figures of each round, evictions, final models.

    Args:
        run: the run.
        tracker: an unused tracker.
    """
    ends = [record.closed_at for record in run.records if record.closed_at]
    now = time.time()  # A simulation records no times.
    digest = run.experiment.digest()
    facts = {"experiment": run.experiment.name, "experiment_digest": digest}
    begins = [record.opened_at for record in run.records if record.opened_at]
    tracker.begin(parameters(run.experiment.tables()), facts, min(begins, default=now))
    try:
        with Progress("rounds tracked", len(run.records)) as progress:
            for number, record in enumerate(run.records):
                metrics = round_metrics(record, {k: v[number] for k, v in run.curves.items()})
                tracker.round(record.round, metrics, barrings(record), record.closed_at or now)
                progress.show(number + 1)
        known = {"evicted": " ".join(run.evicted) or "nobody"}
        if run.figures.get("models_digest"):
            known["models_digest"] = str(run.figures["models_digest"])
        with tempfile.TemporaryDirectory() as folder:
            keep(run, Path(folder))
            tracker.end(numbers(run.figures), known, Path(folder), max(ends, default=now))
    except BaseException:
        tracker.fail()
        raise


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
    """The figures of a round: accuracies, decisions, the median norm, and seconds.

    Args:
        record: the round.
        curves: the values of the run's curves after the round, such as "accuracy_local".
    """
    decisions = Counter(verdict.decision for verdict in record.verdicts)
    norms = list(record.norms.values())
    found: dict[str, float | None] = {
        **curves,
        **{f"verdicts_{decision}": float(count) for decision, count in decisions.items()},
        "updates": float(len(record.participants)),
        "late": float(len(record.late)),
        "absent": float(len(record.missing) - len(record.late)),
        "failed": float(record.status == "failed"),
        "median_norm": median(norms) if norms else None,
        "seconds": sum(record.timings.values()) or None,
    }
    return {name: value for name, value in found.items() if value is not None and isfinite(value)}


def barrings(record: RoundFacts) -> dict[str, str]:
    """Why clients were barred in a round, keyed by client."""
    return {
        v.client: f"{v.decision} in round {record.round} by {v.detector}: {v.reason}"
        for v in record.verdicts
        if v.decision in BARRING
    }


def numbers(figures: Mapping[str, Any]) -> dict[str, float]:
    """The final figures that are finite numbers.

    >>> numbers({"accuracy": 0.5, "evicted": ["a"], "fnr": None, "rounds": 3})
    {'accuracy': 0.5, 'rounds': 3.0}
    """
    return {
        name: float(value)
        for name, value in figures.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    }


def keep(run: FinishedRun, folder: Path) -> None:
    """Copies a run's files and final models, and their provenance, for a tracker to keep."""
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
        "models_digest": run.figures.get("models_digest"),
        "models": {name: run.model_digests[name] for name in models},
        "files": run.digests,
        "rounds": len(run.records),
        "evicted": run.evicted,
        "tracked_by": f"rampart-fl {version('rampart-fl')}",
    }
    (folder / "provenance.json").write_text(json.dumps(provenance, indent=1) + "\n")
