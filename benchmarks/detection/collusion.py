"""Tests whether colluders, just below half of the clients, get honest clients evicted."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

from benchmarks.detection import report
from benchmarks.detection.admissible import refusal
from benchmarks.detection.combinations import FACTORS, Combination
from benchmarks.detection.options import Options
from benchmarks.detection.runs import Figures, Run
from benchmarks.detection.sample import draw

FORMS: dict[str, dict[str, Any]] = {
    "IPM 0.2": {"name": "ipm", "epsilon": 0.2, "knows": "full"},
    "IPM 0.5": {"name": "ipm", "epsilon": 0.5, "knows": "full"},
    "IPM 0.8": {"name": "ipm", "epsilon": 0.8, "knows": "full"},
    "IPM, epsilon n": {"name": "ipm", "knows": "full"},
    "IPM, epsilon n, partial": {"name": "ipm"},
    "mimic": {"name": "mimic"},
    "Sybil clones": {"name": "sybil_clones"},
    "Sybil clones, jitter": {"name": "sybil_clones", "jitter": 0.01},
    "Min-Max": {"name": "min_max", "knows": "full"},
    "Min-Sum": {"name": "min_sum", "knows": "full"},
    "LIE": {"name": "lie", "knows": "full"},
}
CLIENTS = (10, 20, 30)
ROUNDS = 40
RUNS = 20


def colluders(clients: int) -> int:
    """The largest number of colluders that is less than half of the clients.

    >>> colluders(10), colluders(20)
    (4, 9)
    """
    return (clients - 1) // 2


@cache
def sample(seed: int, count: int, data_sets: tuple[str, ...], form: str) -> list[Combination]:
    """The combinations on which one form of collusion is run."""
    levels = {
        **FACTORS,
        "data_set": data_sets,
        "clients": CLIENTS,
        "fraction": (1.0,),
        "rounds": (ROUNDS,),
    }
    return draw(f"{seed} {form}", count, refusal, levels, often=0).combinations


def plan(options: Options) -> list[Run]:
    """Runs of every form of collusion on its combinations."""
    return [
        Run(
            one.tables(
                options.detectors, [{"count": colluders(one.clients), "attack": FORMS[form]}]
            ),
            {"form": form, **asdict(one)},
            one.seconds,
        )
        for form in FORMS
        for one in sample(options.seed, options.runs or RUNS, options.data_sets, form)
    ]


def write(options: Options, results: Sequence[tuple[Run, Figures]]) -> Iterator[str]:
    """The section's part of the report."""
    yield "## Colluders below half"
    yield ""
    yield from report.provenance(options.command, [one for _, one in results])
    shown = ", ".join(f"{colluders(n)} of {n}" for n in CLIENTS)
    yield (
        f"Seed {options.seed}; {shown} clients collude, all clients in every round, {ROUNDS}"
        " rounds; full knowledge unless it says partial. The rest is drawn at random."
    )
    yield from _censoring([one for _, one in results])
    rows = []
    for form in FORMS:
        cell = [one for run, one in results if run.label["form"] == form]
        if cell:
            fnr = report.percent(report.mean_of(cell, "fnr"))
            columns = [
                *report.honest_evictions(cell),
                report.requests(cell),
                fnr,
                *report.excluded_rounds(cell),
                *report.accuracies(cell),
            ]
            rows.append([form, *columns])
    names = (f"accuracy {name}" for name in report.ACCURACIES)
    header = ("form", *report.WRONGED, report.REQUESTED, "FNR", *report.SILENCED, *names)
    yield from report.table(header, rows)


def _censoring(results: Sequence[Figures]) -> Iterator[str]:
    """Says which requests to evict honest clients the table does not show."""
    found = sum(one["fnr"] == 0 for one in results)
    yield ""
    yield (
        f"In {found} of the {len(results)} runs, all colluders were evicted. The bound of half then"
        " allows no further eviction, so a later request to evict an honest client does not show as"
        " an eviction: the server only leaves out the client's update in that round. The column"
        f" `{report.REQUESTED}` counts the honest clients that a detector asked to evict in any"
        " round."
    )
    if uncounted := sum("honest_asked" not in one for one in results):
        yield (
            f"These requests were not counted in {uncounted} older runs. The column has a hyphen"
            " for cells with such runs, and the silenced rounds leave out the rounds of"
            " such requests."
        )
