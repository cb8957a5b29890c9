"""Tests whether and when attackers with loud attacks are evicted, if 30% of the clients attack."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import cache
from math import inf
from statistics import median
from typing import Any

from benchmarks.detection import report
from benchmarks.detection.admissible import refusal
from benchmarks.detection.bounds import interval
from benchmarks.detection.combinations import FACTORS, PARTITIONS, WIDE, Combination
from benchmarks.detection.options import Options
from benchmarks.detection.runs import Figures, Run
from benchmarks.detection.sample import draw

ATTACKS: dict[str, dict[str, Any]] = {
    "sign_flip": {"name": "sign_flip"},
    "model_replacement": {"name": "model_replacement"},
    "ipm": {"name": "ipm", "epsilon": 20},
    "min_max": {"name": "min_max"},
    "min_sum": {"name": "min_sum"},
    "fang": {"name": "fang"},
    "gaussian": {"name": "gaussian"},
}
WITHIN = ("min_max", "min_sum", "fang")
"""Attacks that stay within the spread of honest updates. They have a detection target only for
partitions whose spread is not wide."""
HOSTILE = 0.3
ROUNDS = 100
RUNS, RUNS_WIDE = 20, 10
"""Number of runs per attack and fraction; and number of additional runs, on partitions with a wide
spread, for attacks in `WITHIN`."""
SMALLEST = {0.2: 20}
"""Minimum number of clients, keyed by the fraction selected in each round. Of ten clients, the
fraction 0.2 would select only two."""
NARROW = tuple(name for name in PARTITIONS if name not in WIDE)


@cache
def sample(
    seed: int, count: int, data_sets: tuple[str, ...], attack: str, fraction: float, wide: bool
) -> list[Combination]:
    """The combinations of one attack, fraction and spread."""
    partitions = WIDE if wide else NARROW if attack in WITHIN else tuple(PARTITIONS)
    levels = {
        **FACTORS,
        "data_set": data_sets,
        "partition": partitions,
        "clients": tuple(n for n in FACTORS["clients"] if n >= SMALLEST.get(fraction, 0)),
        "fraction": (fraction,),
        "rounds": (ROUNDS,),
    }
    name = f"{seed} {attack} {fraction} {wide}"
    return draw(name, count, refusal, levels, often=0).combinations


def attacked(one: Combination, attack: str, options: Options) -> dict[str, Any]:
    """The tables of a combination in which the share `HOSTILE` of the clients attack."""
    hostile = [{"count": round(HOSTILE * one.clients), "attack": ATTACKS[attack]}]
    return one.tables(options.detectors, hostile)


def plan(options: Options) -> list[Run]:
    """Runs of every attack at every fraction."""
    cells = [
        (attack, fraction, wide)
        for attack in ATTACKS
        for fraction in options.fractions
        for wide in ((False, True) if attack in WITHIN else (False,))
    ]
    runs = []
    for attack, fraction, wide in cells:
        own = RUNS_WIDE if wide else RUNS
        count = own if options.runs is None else min(own, options.runs)
        for one in sample(options.seed, count, options.data_sets, attack, fraction, wide):
            label = {"attack": attack, "spread": "wide" if wide else "", **asdict(one)}
            # With `settles`, a run ends early once all attackers are evicted.
            runs.append(Run(attacked(one, attack, options), label, one.seconds, settles=True))
    return runs


def write(options: Options, results: Sequence[tuple[Run, Figures]]) -> Iterator[str]:
    """The section's part of the report."""
    yield "## Loud attacks"
    yield ""
    yield from report.provenance(options.command, [one for _, one in results])
    yield (
        f"Seed {options.seed}; {HOSTILE:.0%} of the clients attack, with the attack's default"
        f" knowledge; {ROUNDS} rounds, or fewer once all attackers are evicted, but 30 at least."
        " Data set, partition, clients, epochs, network and method are drawn at random. FNR 0:"
        " runs in which every attacker is evicted, with a 95% Clopper-Pearson interval. Median"
        " eviction: over attackers, the round, and how many rounds it had taken part in, both"
        " counted from 1; never: not half of them are evicted. `wide`: one class per client or"
        " Dirichlet 0.1, where attacks within the spread of honest updates have no target. No run"
        " is compared with the same run without attackers, so the accuracies do not show how much"
        " an attack costs."
    )
    for fraction in options.fractions:
        at = [(run, one) for run, one in results if run.label["fraction"] == fraction]
        if at:
            yield ""
            yield f"### Fraction {fraction:g}"
            yield from report.table(
                (
                    "attack",
                    "runs",
                    "FNR",
                    "FNR 0",
                    "interval",
                    "median eviction",
                    "own rounds",
                    "attackers' updates excluded",
                    "runs with an honest client evicted",
                    *report.SILENCED,
                    *(f"accuracy {name}" for name in report.ACCURACIES),
                ),
                _rows(at),
            )


def _rows(at: Sequence[tuple[Run, Figures]]) -> Iterator[list[str]]:
    for attack in ATTACKS:
        for wide in ("", "wide"):
            cell = [
                one
                for run, one in at
                if (run.label["attack"], run.label["spread"]) == (attack, wide)
            ]
            if cell:
                yield [f"{attack} {wide}".strip(), *row(cell)]


def row(cell: Sequence[Figures]) -> list[str]:
    """The columns of one line of the table."""
    clean = sum(one["fnr"] == 0 for one in cell)
    low, high = interval(clean, len(cell))
    return [
        str(len(cell)),
        report.percent(report.mean_of(cell, "fnr")),
        f"{clean}/{len(cell)}",
        f"{low:.0%} to {high:.0%}",
        *(eviction(cell, key) for key in ("round", "own")),
        excluded(cell),
        f"{sum(one['honest_evicted'] > 0 for one in cell)}",
        *report.excluded_rounds(cell),
        *report.accuracies(cell),
    ]


def excluded(cell: Sequence[Figures]) -> str:
    """The share of the attackers' updates that the rounds excluded.

    A hyphen if any run did not count them.
    """
    if any("hostile_rounds" not in one for one in cell):
        return "-"
    total = sum(one["hostile_rounds"] for one in cell)
    return report.percent(sum(one["hostile_excluded"] for one in cell) / total, 0)


def eviction(cell: Sequence[Figures], key: str) -> str:
    """The median round of eviction over all attackers; "never" if at least half are not evicted.

    Args:
        cell: figures of some runs.
        key: "round" for the round number, or "own" for the count of the attacker's own rounds.
    """
    first = 1 if key == "round" else 0
    rounds: list[float] = []
    for one in cell:
        eviction_rounds = {e["client"]: e[key] + first for e in one["evictions"] if e["hostile"]}
        rounds += [*eviction_rounds.values(), *[inf] * (one["hostile"] - len(eviction_rounds))]
    middle = median(rounds)
    return "never" if middle == inf else f"{middle:g}"
