"""The results of runs that have ended, as a table in plain text."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rampart_fl.services.console.display.formats import aligned, percent
from rampart_fl.shared.figures.run_result import RunResult


def result_table(results: Sequence[RunResult], folders: Sequence[Path | None]) -> str:
    """The metrics of one or several runs side by side, as a table in plain text.

    Args:
        results: the results of the runs.
        folders: the folder of each run; None if the run was not stored.
    """
    labels = {
        "accuracy_customized": "accuracy of the received model",
        "accuracy_local": "accuracy after local training",
        "accuracy_personalized": "accuracy of the personal model",
        "error": "mean squared error of the honest clients",
        "attack_success": "triggered images classified as target",
        "dacc": "clients judged correctly (DAcc)",
        "fpr": "honest clients evicted (FPR)",
        "fnr": "attackers not evicted (FNR)",
    }
    rows = [["", *(one["experiment"] for one in results)]]
    by_name: Sequence[Mapping[str, Any]] = results
    for key, label in labels.items():
        values = [one.get(key) for one in by_name]
        if key == "error":
            cells = ["-" if value is None else f"{value:.4g}" for value in values]
            rows += [] if set(cells) == {"-"} else [[label, *cells]]
        else:
            rows.append([label, *map(percent, values)])
    curves = [one.get("certified", []) for one in results]
    for m in range(max(map(len, curves))):
        label = f"  that {m} more attackers cannot change" if m else "accuracy of the vote"
        rows.append([label, *(percent(c[m] if m < len(c) else None) for c in curves)])
    if any("attack_success_vote" in one for one in results):
        fooled = [percent(one.get("attack_success_vote")) for one in results]
        rows.append(["triggered images classified as target by the vote", *fooled])
    rows.append(["evicted", *(", ".join(one["evicted"]) or "nobody" for one in results)])
    rows.append(["rounds", *(str(one["rounds"]) for one in results)])
    rows.append(["wall time", *(f"{one['seconds']:.0f} s" for one in results)])
    rows.append(["records", *(str(folder or "not kept") for folder in folders)])
    return aligned(rows)
