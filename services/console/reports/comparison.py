"""Several runs side by side, as a table in plain text."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rampart_fl.services.console.display.formats import aligned, duration, percent, size
from rampart_fl.shared.figures.run_result import RunFigures

SHARES = {
    "accuracy_customized": "accuracy of the received model",
    "accuracy_local": "accuracy after local training",
    "accuracy_personalized": "accuracy of the personal model",
    "dacc": "clients judged correctly (DAcc)",
    "fpr": "honest clients evicted (FPR)",
    "fnr": "attackers not evicted (FNR)",
}
"""Labels of the metrics that are fractions, keyed by metric. The table shows only metrics that at
least one run has."""
LONGEST = 40
"""Maximum number of characters shown per setting."""


def comparison_table(
    names: Sequence[str],
    states: Sequence[str],
    figures: Sequence[RunFigures],
    settings: Mapping[str, Sequence[Any]],
) -> str:
    """A table with a column per run, a line per metric, and a line per setting that differs.

    Args:
        names: ids of the runs.
        states: states of the runs, such as "finished".
        figures: the metrics of the runs; see `rampart_fl.shared.figures.comparison.run_figures`.
        settings: the settings in which the experiments differ; see `differences`.
    """
    rows = [["", *names], ["state", *states]]
    by_name: Sequence[Mapping[str, Any]] = figures
    for key, label in SHARES.items():
        values = [one.get(key) for one in by_name]
        if any(value is not None for value in values):
            rows.append([label, *map(percent, values)])
    if any(one.get("error") is not None for one in figures):
        rows.append(["mean squared error", *(_number(one.get("error")) for one in figures)])
    rows.append(["evicted", *(_evicted(one["evicted"]) for one in figures)])
    rows.append(["clients", *(str(one["clients"]) for one in figures)])
    rows.append(["rounds", *map(_rounds, figures)])
    traffic = [one["bytes_per_client"] for one in figures]
    rows.append(["received per client and round", *(size(one["down"]) for one in traffic)])
    rows.append(["sent per client and round", *(size(one["up"]) for one in traffic)])
    rows.append(["transferred", *(size(one["bytes"]) for one in figures)])
    rows.append(["duration", *(_duration(one["seconds"]) for one in figures)])
    if settings:
        rows.append(["settings that differ", *("" for _ in names)])
        rows += [[f"  {path}", *map(_setting, values)] for path, values in settings.items()]
    return aligned(rows)


def _evicted(clients: Sequence[str]) -> str:
    shown = ", ".join(clients[:3]) or "nobody"
    return shown if len(clients) <= 3 else f"{shown} and {len(clients) - 3} more"


def _rounds(figures: RunFigures) -> str:
    failed = figures["failed_rounds"]
    return f"{figures['rounds']}, {failed} failed" if failed else str(figures["rounds"])


def _duration(seconds: float | None) -> str:
    return "-" if seconds is None else duration(seconds)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _setting(value: Any) -> str:
    plain = _plain(value)
    text = "-" if plain is None else plain if isinstance(plain, str) else json.dumps(plain)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _plain(value: Any) -> Any:
    """Replaces each dictionary {"name": x} with x, also inside lists; keeps other dictionaries."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value["name"] if isinstance(value, dict) and value.keys() == {"name"} else value
