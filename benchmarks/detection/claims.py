"""Tests whether false sample counts help attackers, or get honest clients evicted."""

from collections.abc import Iterator, Sequence
from itertools import product
from math import inf
from statistics import median
from typing import Any

from benchmarks.detection import report
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
METHODS: dict[str, dict[str, Any]] = {
    "fedcap": {},
    "global": {"personalizer": {"name": "none"}, "customizer": {"name": "global_model"}},
    "limited": {
        "personalizer": {"name": "none"},
        "customizer": {"name": "global_model"},
        "rule": [{"name": "weight_limit"}, {"name": "weighted_mean"}],
    },
}
"""Changes to the experiment, keyed by method. FedCAP's mixing ignores sample counts; the global
model weights updates by their capped sample counts. In the third method, no update weighs more than
twice as much as the median update."""
FACTORS = ("method", "attack", "claim")
SEEDS = 10


def plan(options: Options) -> list[Run]:
    """Runs of every method and attack with every claim, all over the same seeds."""
    runs = []
    for method, attack, claim in product(METHODS, ATTACKS, CLAIMS):
        for seed in range(options.seed, options.seed + (options.runs or SEEDS)):
            tables = _tables(method, attack, seed, options.detectors)
            label = {"method": method, "attack": attack, "claim": claim, "seed": seed}
            runs.append(Run(tables, label, claim=CLAIMS[claim]))
    return runs


def _tables(
    method: str, attack: str, seed: int, detectors: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    from rampart_fl.shared.experiment import Experiment

    tables = Experiment.load("digits-benign").tables()
    changes = METHODS[method]
    server = {"customizer": tables["server"]["customizer"]}
    server |= {name: changes[name] for name in ("customizer", "rule") if name in changes}
    return tables | {
        "seed": seed,
        "attackers": [{"count": 6, "attack": ATTACKS[attack]}],
        "server": {"detectors": list(detectors), **server},
        "personalizer": changes.get("personalizer", tables["personalizer"]),
    }


def write(options: Options, results: Sequence[tuple[Run, Figures]]) -> Iterator[str]:
    """The section's part of the report."""
    yield "## Claimed sample counts"
    yield ""
    yield from report.provenance(options.command, [one for _, one in results])
    yield (
        f"Digits, 14 honest clients and 6 attackers that claim another sample count; cap {CAP:,}."
        " FedCAP's mixing uses no sample counts, the global model does (method `global`)."
        " In the method `limited`, no update weighs more than twice the median weight."
        " Median eviction: over attackers, the round, and how many rounds it had taken part in."
    )
    by_cell = {
        key: {
            run.label["seed"]: one
            for run, one in results
            if tuple(run.label[factor] for factor in FACTORS) == key
        }
        for key in product(METHODS, ATTACKS, CLAIMS)
    }
    cells = {key: cell for key, cell in by_cell.items() if cell}
    header = (
        ", ".join(FACTORS),
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
    for (method, attack, claim), cell in cells.items():
        truth = cells.get((method, attack, "true"), {})
        both = [(one, truth[seed]) for seed, one in cell.items() if seed in truth]
        if claim != "true" and both:
            differences.append([f"{method}, {attack}, {claim}", *_difference(both)])
    yield from report.table((", ".join(FACTORS), "rounds", *ACCURACIES), differences)


def _difference(both: Sequence[tuple[Figures, Figures]]) -> Iterator[str]:
    ends = [(_eviction(one), _eviction(other)) for one, other in both]
    known = [one - other for one, other in ends if inf not in (one, other)]
    never = len(ends) - len(known)
    summary = report.signed(known) if known else "-"
    yield f"{summary}; {never} of {len(ends)} seeds without an eviction" if never else summary
    for name in ACCURACIES:
        points = [100 * (a[name] - b[name]) for a, b in both if a[name] is not None]
        yield report.signed(points) if points else "-"


def _eviction(one: Figures) -> float:
    """The median round of eviction over one run's attackers; infinity stands for never."""
    rounds = {e["client"]: float(e["round"]) for e in one["evictions"] if e["hostile"]}
    return median([*rounds.values(), *[inf] * (one["hostile"] - len(rounds))])
