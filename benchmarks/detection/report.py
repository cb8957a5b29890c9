"""The report in Markdown, with one part per section."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.detection.bounds import of_mean, upper
from benchmarks.detection.figures import ACCURACIES
from benchmarks.detection.runs import Figures

TITLE = "# Detection"
PART = re.compile(r"<!-- part (\w+) -->\n(.*?)\n<!-- end \1 -->", re.DOTALL)
WORST = 0.05
"""No honest client's update should be excluded in more than this share of the client's rounds."""


def renew(path: Path, section: str, text: str, order: Sequence[str]) -> None:
    """Replaces one section's part of the report and keeps the other parts."""
    parts = dict(PART.findall(path.read_text())) if path.exists() else {}
    parts[section] = text
    blocks = [f"<!-- part {s} -->\n{parts[s]}\n<!-- end {s} -->" for s in order if s in parts]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join([TITLE, *blocks]) + "\n")


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """The lines of a Markdown table, whose columns after the first are right-aligned."""
    yield ""
    yield f"| {' | '.join(header)} |"
    yield f"|---|{'---:|' * (len(header) - 1)}"
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"
    yield ""


def percent(share: float | None, digits: int = 1) -> str:
    """A share in percent, or a hyphen for None."""
    return "-" if share is None else f"{share:.{digits}%}"


WRONGED = ("runs", "with an honest client evicted", "95% bound", "honest clients evicted")
"""Titles of the columns that `honest_evictions` returns."""


def honest_evictions(results: Sequence[Figures]) -> list[str]:
    """How many runs evicted honest clients, and how many honest clients were evicted."""
    events = sum(one["honest_evicted"] > 0 for one in results)
    clients = sum(one["honest"] for one in results)
    evicted = sum(one["honest_evicted"] for one in results)
    return [
        str(len(results)),
        str(events),
        percent(upper(events, len(results))),
        f"{evicted}/{clients}",
    ]


REQUESTED = "honest evictions requested"
"""Title of the column that `requests` returns."""


def requests(results: Sequence[Figures]) -> str:
    """How many honest clients a detector asked to evict, or a hyphen if any run did not count."""
    counts = [one.get("honest_asked") for one in results]
    return "-" if None in counts else str(sum(counts))


SILENCED = ("honest rounds silenced", "worst client", "runs above 5%")
"""Titles of the columns that `excluded_rounds` returns."""


def excluded_rounds(results: Sequence[Figures]) -> list[str]:
    """The share of rounds that excluded honest clients' updates: for all clients, and the worst."""
    total = sum(one["client_rounds"] for one in results)
    worst = [one["worst_silenced"] for one in results]
    share = sum(one["silenced"] for one in results) / total if total else None
    return [percent(share, 2), percent(max(worst)), str(sum(one > WORST for one in worst))]


def accuracies(results: Sequence[Figures]) -> list[str]:
    """Mean accuracies, in the order of `ACCURACIES`."""
    return [percent(mean_of(results, name)) for name in ACCURACIES]


def gaps(results: Sequence[Figures], name: str) -> list[float]:
    """Each run's accuracy minus the accuracy of its second run, in percentage points."""
    return [100 * (one[name] - one["without"][name]) for one in results if one[name] is not None]


def signed(values: Sequence[float]) -> str:
    """Mean and 95% t interval of independent differences, as text.

    >>> signed([1.0, 2.0, 3.0])
    '+2.00 (-0.48 to +4.48)'
    """
    middle, low, high = of_mean(values)
    return f"{middle:+.2f} ({low:+.2f} to {high:+.2f})"


def mean_of(results: Sequence[Figures], name: str) -> float | None:
    """The mean of a figure over the runs that have it."""
    values = [one[name] for one in results if one[name] is not None]
    return fmean(values) if values else None


def provenance(command: str, results: Sequence[Figures]) -> Iterator[str]:
    """The command, the number of runs, the time of these runs on one core, and the commits."""
    commits = ", ".join(sorted({one["commit"] for one in results})) or "none"
    hours = sum(one["core_s"] for one in results) / 3600
    yield f"`{command}`; {len(results)} runs in {hours:.2f} core-hours, commit {commits}."
