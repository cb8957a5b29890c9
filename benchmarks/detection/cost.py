"""Measures what attacks within the spread of honest updates cost, where this spread is wide."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from benchmarks.detection import report
from benchmarks.detection.loud import HOSTILE, ROUNDS, RUNS_WIDE, WITHIN, attacked, sample
from benchmarks.detection.options import Options
from benchmarks.detection.runs import Figures, Run


def plan(options: Options) -> list[Run]:
    """Runs of every attack at every fraction, each with a second run without attackers."""
    runs = []
    for attack in WITHIN:
        for fraction in options.fractions:
            count = options.runs or RUNS_WIDE
            for one in sample(options.seed, count, options.data_sets, attack, fraction, True):
                tables, label = attacked(one, attack, options), {"attack": attack, **asdict(one)}
                runs.append(Run(tables, label, 2 * one.seconds, without="attackers"))
    return runs


def write(options: Options, results: Sequence[tuple[Run, Figures]]) -> Iterator[str]:
    """The section's part of the report."""
    yield "## What attacks within the spread cost"
    yield ""
    yield from report.provenance(options.command, [one for _, one in results])
    yield (
        f"Seed {options.seed}; partitions with one class per client or Dirichlet 0.1; {HOSTILE:.0%}"
        f" of the clients attack for {ROUNDS} rounds. In a second run of the same experiment, these"
        " clients do not attack. Cost: accuracy with the attack minus accuracy without it, for the"
        " clients that are honest in both runs, in points; mean and 95% t interval."
    )
    header = (
        "attack, fraction",
        "runs",
        "FNR",
        "runs with an honest client evicted",
        *(f"accuracy {name}" for name in report.ACCURACIES),
        *(f"cost, {name}" for name in report.ACCURACIES),
    )
    yield from report.table(header, _rows(options, results))


def _rows(options: Options, results: Sequence[tuple[Run, Figures]]) -> Iterator[list[str]]:
    for attack in WITHIN:
        for fraction in options.fractions:
            key = (attack, fraction)
            cell = [
                one for run, one in results if (run.label["attack"], run.label["fraction"]) == key
            ]
            if cell:
                gaps = [report.gaps(cell, name) for name in report.ACCURACIES]
                yield [
                    f"{attack}, {fraction:g}",
                    str(len(cell)),
                    report.percent(report.mean_of(cell, "fnr")),
                    str(sum(one["honest_evicted"] > 0 for one in cell)),
                    *report.accuracies(cell),
                    *(report.signed(points) if points else "-" for points in gaps),
                ]
