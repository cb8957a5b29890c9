"""No attackers: a random sample of combinations with the detector and, if paired, also without."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache

from benchmarks.detection import report
from benchmarks.detection.admissible import refusal
from benchmarks.detection.bounds import of_mean
from benchmarks.detection.combinations import FACTORS
from benchmarks.detection.figures import ACCURACIES
from benchmarks.detection.options import Options
from benchmarks.detection.runs import Figures, Run
from benchmarks.detection.sample import Sample, draw

RUNS = 300


@cache
def sample(seed: int, count: int, data_sets: tuple[str, ...]) -> Sample:
    """The sample of combinations that are run."""
    return draw(seed, count, refusal, {**FACTORS, "data_set": data_sets})


def plan(options: Options) -> list[Run]:
    """One run per combination with the detector and, if paired, one run without it."""
    drawn = sample(options.seed, options.runs or RUNS, options.data_sets)
    detectors = [("on", options.detectors), *([("off", ())] if options.paired else [])]
    return [
        Run(one.tables(used), {**asdict(one), "detector": name}, one.seconds)
        for one in drawn.combinations
        for name, used in detectors
    ]


@dataclass(frozen=True)
class Pair:
    """The figures of one combination with the detector and without it."""

    on: Figures
    off: Figures


def write(options: Options, found: Sequence[tuple[Run, Figures]]) -> Iterator[str]:
    """The section's part of the report."""
    judged = [(run, one) for run, one in found if run.label["detector"] == "on"]
    yield "## Nobody attacks"
    yield ""
    yield from report.provenance(options.command, [one for _, one in found])
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
    yield from _paired(found)
    yield from _evictions(judged)


def _about(options: Options) -> Iterator[str]:
    drawn = sample(options.seed, options.runs or RUNS, options.data_sets)
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
    yield ["**all**", *report.wronged(everything), *report.silenced(everything)]
    for factor, levels in FACTORS.items():
        for level in levels:
            of_level = [one for run, one in judged if run.label[factor] == level]
            if of_level:
                name = f"{factor.replace('_', ' ')}: {level}"
                yield [name, *report.wronged(of_level), *report.silenced(of_level)]


def pairs(found: Sequence[tuple[Run, Figures]]) -> list[Pair]:
    """The combinations that were run both with and without the detector."""
    by_seed: dict[str, dict[int, Figures]] = {"on": {}, "off": {}}
    for run, one in found:
        by_seed[run.label["detector"]][run.label["seed"]] = one
    both = by_seed["on"].keys() & by_seed["off"].keys()
    return [Pair(by_seed["on"][seed], by_seed["off"][seed]) for seed in sorted(both)]


def _paired(found: Sequence[tuple[Run, Figures]]) -> Iterator[str]:
    both = pairs(found)
    if not both:
        return
    yield ""
    yield (
        f"The same {len(both)} combinations without a detector: accuracy with it minus accuracy"
        " without, in points, mean and 95% t interval."
    )
    rows = []
    for name in ACCURACIES:
        gaps = [
            100 * (pair.on[name] - pair.off[name]) for pair in both if pair.on[name] is not None
        ]
        if gaps:
            middle, low, high = of_mean(gaps)
            cells = [f"{value:+.2f}" for value in (middle, low, high, min(gaps), max(gaps))]
            rows.append([name, str(len(gaps)), *cells])
    yield from report.table(("accuracy", "runs", "mean", "low", "high", "least", "most"), rows)


def _evictions(judged: Sequence[tuple[Run, Figures]]) -> Iterator[str]:
    rows = [
        [
            ", ".join(f"{value}" for key, value in run.label.items() if key != "detector"),
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
