"""Repeats cached runs, to show that the judging code still gives the same verdicts.

    python -m benchmarks.detection.same --count 12 --seed 1

The cached runs are drawn at random from the caches in the folder `--caches`. Only simulations that
took at most `--seconds` seconds are drawn. All figures must be equal; only times, the commit and
the words of reasons may differ. The cached runs must come from this machine, because other
processors round differently, and the differences grow over many rounds.
"""

import argparse
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.detection import benign, claims, collusion, loud, table
from benchmarks.detection.combinations import DEFAULT, FACTORS
from benchmarks.detection.options import Options
from benchmarks.detection.runs import Cache, Figures, Run, execute, headline
from benchmarks.detection.sample import OFTEN

ROOT = Path(__file__).resolve().parents[2]
SECTIONS = {
    "benign": (benign, 770519),
    "claims": (claims, 192837),
    "collusion": (collusion, 918273),
    "loud": (loud, 335577),
    "table": (table, 445566),
}
"""Sections with the seeds of their recorded runs."""
LONGEST = 60
"""Maximum number of characters that are shown of a figure."""
VARIABLE = {"wall_s", "core_s", "commit", "key", "label"}
"""What may differ between two executions of a run."""


def recorded(caches: Path, seconds: float) -> Iterator[tuple[str, Run, Figures]]:
    """Yields the cached runs of all sections that took at most `seconds`."""
    for name, (section, seed) in SECTIONS.items():
        data_sets, partitions = FACTORS["data_set"], FACTORS["partition"]
        options = Options(tuple(DEFAULT), seed, None, data_sets, partitions, 0, OFTEN, "")
        entries = Cache.of(caches / f"{name}.jsonl").entries
        for run in section.plan(options):
            figures = entries.get(run.key)
            if figures is not None and figures["wall_s"] <= seconds:
                yield name, run, figures


def differences(one: Figures, other: Figures) -> list[str]:
    """The figures that are not equal.

    >>> differences({"fnr": 0.5, "wall_s": 1}, {"fnr": 0.25, "wall_s": 2})
    ['fnr: 0.5, now 0.25']
    """
    names = (one.keys() & other.keys()) - VARIABLE
    return [
        f"{n}: {str(one[n])[:LONGEST]}, now {str(other[n])[:LONGEST]}"
        for n in sorted(names)
        if without_reasons(one[n]) != without_reasons(other[n])
    ]


def without_reasons(figure: Any) -> Any:
    """A figure; without the words of reasons, if it is a list of evictions.

    >>> without_reasons([{"client": "a", "round": 9, "reason": "evidence 11.7 exceeds 9.95"}])
    [{'client': 'a', 'round': 9}]
    """
    if not isinstance(figure, list):
        return figure
    return [{name: one[name] for name in one if name != "reason"} for one in figure]


def main() -> None:
    """Repeats runs, and exits with 1 if any figure differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--caches", type=Path, default=ROOT / "benchmarks/results/detection")
    given = parser.parse_args()
    known = list(recorded(given.caches, given.seconds))
    drawn = random.Random(given.seed).sample(known, min(given.count, len(known)))
    different = 0
    for name, run, figures in drawn:
        changed = differences(figures, execute(run))
        different += bool(changed)
        label = ", ".join(map(str, run.label.values()))
        print(f"{name}: {label}: {'; '.join(changed) or 'equal: ' + headline(figures)}", flush=True)
    print(f"{len(drawn) - different} of {len(drawn)} runs are equal")
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
