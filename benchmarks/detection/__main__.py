"""Plans one section of the detection benchmark, executes the missing runs, and reports."""

import argparse
import shlex
import sys
from collections import Counter
from pathlib import Path

from benchmarks.detection import benign, claims, collusion, cost, level, loud, network, table
from benchmarks.detection.combinations import DEFAULT, FACTORS, UNSEEN
from benchmarks.detection.options import Options, member
from benchmarks.detection.report import renew
from benchmarks.detection.runs import ROOT, Cache, Run, finish, span
from benchmarks.detection.sample import OFTEN
from rampart_fl.shared.runtime import cpus

SECTIONS = {
    "benign": benign,
    "loud": loud,
    "cost": cost,
    "collusion": collusion,
    "table": table,
    "claims": claims,
    "network": network,
}
OUT = ROOT / "benchmarks/results/detection.md"
RUNS = ROOT / "benchmarks/results/detection"


def main() -> None:
    """Runs one section of the benchmark."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.detection", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("section", choices=[*SECTIONS, "level"])
    parser.add_argument(
        "--detector",
        type=member,
        action="append",
        help="name or JSON; may be repeated (default: the detectors of the shipped experiments)",
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the sample, or first seed")
    parser.add_argument("--runs", type=int, help="number of runs, per cell if there are cells")
    parser.add_argument(
        "--data-sets",
        nargs="+",
        default=FACTORS["data_set"],
        choices=(*FACTORS["data_set"], *UNSEEN),
    )
    parser.add_argument(
        "--often",
        type=int,
        default=OFTEN,
        help="benign: minimum number of combinations with each level (default: %(default)s)",
    )
    parser.add_argument(
        "--partitions",
        nargs="+",
        default=FACTORS["partition"],
        choices=FACTORS["partition"],
        help="benign: only these partitions",
    )
    parser.add_argument(
        "--fractions",
        type=float,
        nargs="+",
        default=FACTORS["fraction"],
        choices=FACTORS["fraction"],
        help="benign, loud, cost: only these fractions of clients per round",
    )
    parser.add_argument(
        "--paired",
        type=int,
        nargs="?",
        const=sys.maxsize,
        default=0,
        metavar="N",
        help="benign: also run without detectors, the first N combinations (default: all of them)",
    )
    parser.add_argument("--jobs", type=int, default=cpus.threads())
    parser.add_argument(
        "--cache",
        type=Path,
        help="file of finished runs (default: benchmarks/results/detection/SECTION.jsonl)",
    )
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--plan", action="store_true", help="print the plan, and run nothing")
    parser.add_argument("--limit", type=int, help="run only this many runs, from the plan's start")
    given = parser.parse_args()
    options = Options(
        detectors=tuple(given.detector or DEFAULT),
        seed=given.seed,
        runs=given.runs,
        data_sets=tuple(given.data_sets),
        partitions=tuple(given.partitions),
        paired=given.paired,
        fractions=tuple(given.fractions),
        often=given.often,
        command=shlex.join(["python", "-m", "benchmarks.detection", *sys.argv[1:]]),
    )
    if given.section == "level":
        text = "\n".join(level.write(options))
        renew(given.out, "level", text, [*SECTIONS, "level"])
        print(text)
        return
    section = SECTIONS[given.section]
    kept = Cache.of(given.cache or RUNS / f"{given.section}.jsonl")
    runs = section.plan(options)
    describe(runs, kept)
    if given.plan:
        return
    runs = runs[: given.limit]
    results = finish(runs, kept, given.jobs)
    text = "\n".join(section.write(options, results))
    if len(results) < len(runs):
        text += f"\n\n**{len(runs) - len(results)} runs failed.**"
    renew(given.out, given.section, text, [*SECTIONS, "level"])
    print(text)


def describe(runs: list[Run], kept: Cache) -> None:
    """Prints the number of planned runs, and how long the missing runs take on one core."""
    left = [run for run in runs if run.key not in kept.entries]
    longest = max((run.seconds for run in left), default=0.0)
    print(
        f"{len(runs)} runs, {len(left)} to do: about {span(sum(run.seconds for run in left))} "
        f"of one core, the longest {span(longest)}",
        file=sys.stderr,
    )
    for factor in FACTORS:
        counts = Counter(run.label[factor] for run in runs if factor in run.label)
        if counts:
            counted = ", ".join(f"{level} {n}" for level, n in sorted(counts.items(), key=str))
            print(f"  {factor}: {counted}", file=sys.stderr)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted; to continue after the finished runs, repeat the command")
