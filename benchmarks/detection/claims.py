"""Tests whether false sample counts help attackers, or get honest clients evicted."""

from collections.abc import Iterator, Sequence
from math import inf
from statistics import median
from typing import Any

from benchmarks.detection import report
from benchmarks.detection.bounds import of_mean
from benchmarks.detection.figures import ACCURACIES
from benchmarks.detection.loud import row
from benchmarks.detection.options import Options
from benchmarks.detection.runs import Figures, Run

ATTACKS: dict[str, dict[str, Any]] = {
    "sign_flip": {"name": "sign_flip"},
    "min_max": {"name": "min_max"},
    "ipm": {"name": "ipm", "epsilon": 20},
}
CAP = 10_000
"""The server's default cap on claimed sample counts."""
CLAIMS = {"true": None, "1": 1, "1,000": 1000, f"{CAP:,}": CAP}
SEEDS = 10


def plan(options: Options) -> list[Run]:
    """Runs of every attack with every claim, all over the same seeds."""
    from rampart_fl.shared.experiment import Experiment

    runs = []
    for attack, spec in ATTACKS.items():
        for claim, samples in CLAIMS.items():
            for seed in range(options.seed, options.seed + (options.runs or SEEDS)):
                tables = Experiment.load("digits-benign").tables()
                customizer = tables["server"]["customizer"]
                server = {"detectors": list(options.detectors), "customizer": customizer}
                attackers = [{"count": 6, "attack": spec}]
                tables |= {"seed": seed, "attackers": attackers, "server": server}
                label = {"attack": attack, "claim": claim, "seed": seed}
                runs.append(Run(tables, label, claim=samples))
    return runs


def write(options: Options, results: Sequence[tuple[Run, Figures]]) -> Iterator[str]:
    """The section's part of the report."""
    yield "## Claimed sample counts"
    yield ""
    yield from report.provenance(options.command, [one for _, one in results])
    yield (
        f"Digits, 14 honest clients and 6 attackers that claim another sample count; cap {CAP:,}."
        " Median eviction: over attackers, the round, and how many rounds it had taken part in."
    )
    by_cell = {
        (attack, claim): {
            run.label["seed"]: one
            for run, one in results
            if (run.label["attack"], run.label["claim"]) == (attack, claim)
        }
        for attack in ATTACKS
        for claim in CLAIMS
    }
    cells = {key: cell for key, cell in by_cell.items() if cell}
    header = (
        "attack, claim",
        "runs",
        "FNR",
        "FNR 0",
        "interval",
        "median eviction",
        "own rounds",
        "runs with an honest client evicted",
        *report.SILENCED,
        *(f"accuracy {name}" for name in ACCURACIES),
    )
    rows = ([", ".join(key), *row(list(cell.values()))] for key, cell in cells.items())
    yield from report.table(header, rows)
    yield (
        "False claim minus true claim of the same seed, mean and 95% t interval: rounds until a"
        " seed's median eviction, and points of accuracy."
    )
    differences = []
    for (attack, claim), cell in cells.items():
        truth = cells.get((attack, "true"), {})
        both = [(one, truth[seed]) for seed, one in cell.items() if seed in truth]
        if claim != "true" and both:
            differences.append([f"{attack}, {claim}", *_difference(both)])
    yield from report.table(("attack, claim", "rounds", *ACCURACIES), differences)


def _difference(both: Sequence[tuple[Figures, Figures]]) -> Iterator[str]:
    ends = [(_eviction(one), _eviction(other)) for one, other in both]
    known = [one - other for one, other in ends if inf not in (one, other)]
    never = len(ends) - len(known)
    summary = _summary(known) if known else "-"
    yield f"{summary}; {never} of {len(ends)} seeds without an eviction" if never else summary
    for name in ACCURACIES:
        yield _summary([100 * (one[name] - other[name]) for one, other in both])


def _summary(values: Sequence[float]) -> str:
    middle, low, high = of_mean(values)
    return f"{middle:+.2f} ({low:+.2f} to {high:+.2f})"


def _eviction(one: Figures) -> float:
    """The median round of eviction over one run's attackers; infinity stands for never."""
    rounds = {e["client"]: float(e["round"]) for e in one["evictions"] if e["hostile"]}
    return median([*rounds.values(), *[inf] * (one["hostile"] - len(rounds))])
