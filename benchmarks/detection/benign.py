"""Runs without attackers: a sample of combinations with detectors and, if paired, without."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import cache

from benchmarks.detection import report
from benchmarks.detection.admissible import refusal
from benchmarks.detection.bounds import of_mean
from benchmarks.detection.combinations import FACTORS, UNSEEN
from benchmarks.detection.figures import ACCURACIES
from benchmarks.detection.options import Options
from benchmarks.detection.runs import Figures, Run, touched
from benchmarks.detection.sample import Sample, draw

RUNS = 300


@cache
def sample(
    seed: int,
    count: int,
    data_sets: tuple[str, ...],
    partitions: tuple[str, ...],
    fractions: tuple[float, ...],
    often: int,
) -> Sample:
    """The sample of combinations that are run."""
    limited = {"data_set": data_sets, "partition": partitions, "fraction": fractions}
    levels = {**FACTORS, **limited}
    return draw(seed, count, refusal, levels, often)


def _drawn(options: Options) -> Sample:
    count, often = options.runs or RUNS, options.often
    limited = (options.data_sets, options.partitions, options.fractions)
    return sample(options.seed, count, *limited, often)


def plan(options: Options) -> list[Run]:
    """One run per combination; a paired run includes a second simulation without detectors."""
    drawn = _drawn(options)
    return [
        Run(
            one.tables(options.detectors),
            asdict(one),
            one.seconds,
            without="detectors" if place < options.paired else "",
        )
        for place, one in enumerate(drawn.combinations)
    ]


def write(options: Options, judged: Sequence[tuple[Run, Figures]]) -> Iterator[str]:
    """The section's part of the report."""
    yield "## Nobody attacks"
    yield ""
    yield from report.provenance(options.command, [one for _, one in judged])
    yield from _about(options)
    yield from report.table(("", *report.WRONGED, *report.SILENCED), _strata(judged))
    yield (
        "Mean accuracy of the honest clients: "
        + ", ".join(
            f"{name} {value}"
            for name, value in zip(
                ACCURACIES, report.accuracies([one for _, one in judged]), strict=True
            )
        )
        + "."
    )
    yield from _paired(judged)
    yield from _evictions(judged)


def _about(options: Options) -> Iterator[str]:
    drawn = _drawn(options)
    total = len(drawn.combinations)
    yield (
        f"Sample of seed {options.seed}: {drawn.free} admissible combinations drawn from all levels"
        f" alike, then {total - drawn.free} for levels that were in too few. Bound: one-sided 95%"
        " Clopper-Pearson, on the probability that a run evicts an honest client. Silenced:"
        " rejected or quarantined, as a share of the rounds that honest clients were in; worst"
        " client: highest share of its own rounds."
    )
    for (factor, level), reason in drawn.missing.items():
        yield f"No further admissible combination with {factor} = {level}: {reason}."
    common = "; ".join(f"{reason} ({n})" for reason, n in drawn.refused.most_common(8))
    yield f"Refused draws: {drawn.refused.total()}. The most frequent reasons: {common or 'none'}."


def _strata(judged: Sequence[tuple[Run, Figures]]) -> Iterator[list[str]]:
    everything = [one for _, one in judged]
    if not everything:
        return
    yield ["**all**", *report.honest_evictions(everything), *report.excluded_rounds(everything)]
    for factor, levels in FACTORS.items():
        for level in (*levels, *(UNSEEN if factor == "data_set" else ())):
            of_level = [one for run, one in judged if run.label[factor] == level]
            if of_level:
                name = f"{factor.replace('_', ' ')}: {level}"
                yield [name, *report.honest_evictions(of_level), *report.excluded_rounds(of_level)]


def _paired(judged: Sequence[tuple[Run, Figures]]) -> Iterator[str]:
    pairs = [(run.label["fraction"], one) for run, one in judged if "without" in one]
    if not pairs:
        return
    both = [one for _, one in pairs]
    altered = sum(map(touched, both))
    yield ""
    yield (
        f"{len(both)} of these combinations without a detector: accuracy with it minus accuracy"
        f" without, in points, mean and 95% t interval. In {altered} of them the detector kept an"
        " update out, changed a model or summoned a client; the others are equal for that reason."
    )
    rows = _gaps("", both)
    for fraction in sorted({fraction for fraction, _ in pairs}, reverse=True):
        cell = [one for level, one in pairs if level == fraction]
        rows += _gaps(f", fraction {fraction:g}", cell)
    yield from report.table(("accuracy", "runs", "mean", "low", "high", "least", "most"), rows)


def _gaps(suffix: str, results: Sequence[Figures]) -> list[list[str]]:
    rows = []
    for name in ACCURACIES:
        gaps = report.gaps(results, name)
        if gaps:
            middle, low, high = of_mean(gaps)
            cells = [f"{value:+.2f}" for value in (middle, low, high, min(gaps), max(gaps))]
            rows.append([name + suffix, str(len(gaps)), *cells])
    return rows


def _evictions(judged: Sequence[tuple[Run, Figures]]) -> Iterator[str]:
    rows = [
        [
            ", ".join(f"{value}" for value in run.label.values()),
            f"{one['honest_evicted']}/{one['honest']}",
            one["evictions"][0]["reason"],
        ]
        for run, one in judged
        if one["honest_evicted"]
    ]
    if rows:
        yield ""
        yield "Every run in which honest clients were evicted, with the first reason given:"
        yield from report.table(("combination, seed last", "evicted", "reason"), rows)
