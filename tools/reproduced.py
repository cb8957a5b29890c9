"""Writes the page that lists which tables of papers have been run: `python -m tools.reproduced`.

The page depends on the definitions of the tables, and on the runs in the folder of results. A test
fails if the page is not up to date.
"""

from collections import Counter
from functools import cache
from pathlib import Path

from rampart_fl.services.console.studies.reproduction.cells import TableCell, cells
from rampart_fl.services.console.studies.reproduction.files import hours, load, names
from rampart_fl.services.console.studies.reproduction.runs import plan

ROOT = Path(__file__).resolve().parents[1]
PATH = ROOT / "docs" / "papers" / "runs.md"
KEPT = ROOT / "benchmarks" / "results" / "papers"
PAPERS = ("fedcap", "sdea", "pawbrofl", "interpolated", "msdfl")
SEEDS = 3
"""Number of runs after which a cell counts as finished."""
MOST = 5
"""Maximum number of runs of a cell."""
HEAD = """\
# Which tables have been run

`python -m tools.reproduced` writes this page from the definitions of the tables and the runs in
`benchmarks/results/papers`. A test fails if the page is out of date. The page
[The papers](README.md) explains the commands and the estimates.

## At the scale `reduced`

Each cell is planned with three seeds, and is finished if it has a run with each of them. The
column *runs* has the number of finished runs and the number of planned runs. The column *hours
left* has the estimated time of the missing runs on one core. A run that appears in several tables
is counted in each of them. The command executes the missing runs.

| table | cells | finished | with fewer seeds | runs | hours left | command |
|---|---:|---:|---:|---:|---:|---|
"""
LEFT_OUT = """
## Left out of the scale `reduced`

The scale `reduced` leaves out the following cells. The column *why* has the reason: the cell cannot
be run at any scale, or the table would take more than an hour on two cores. In the second case, the
option `--only` still runs the cell at the scale `reduced`. The column *hours in full* has the
estimated time of the whole table at the scale `full`, on one core with three seeds.

| table | cells | hours in full | why |
|---|---:|---:|---|
"""


def page() -> str:
    """The page as Markdown."""
    kept = {path.name for path in (KEPT / "cells").glob("*.json")}
    rows, left_out = [], []
    for name in sorted(names(), key=lambda name: PAPERS.index(load(name).paper)):
        rows.append(_row(name, [of for of in run_files(name) if of], kept))
        reasons = Counter(cell.reason for cell in table_cells(name) if cell.reason)
        full = f"{hours()[name]['full']:g}"
        left_out += [f"| `{name}` | {n} | {full} | {why} |" for why, n in reasons.items()]
    return HEAD + "\n".join(rows) + "\n" + LEFT_OUT + "\n".join(left_out) + "\n"


@cache
def table_cells(name: str) -> list[TableCell]:
    """The cells of a table at the scale `reduced`, with the runs of the first `MOST` seeds."""
    return cells(load(name), "reduced", MOST)


@cache
def run_files(name: str) -> list[list[str]]:
    """For every cell of a table: the files of its runs."""
    return [[run.file for run in plan([cell])] for cell in table_cells(name)]


def _row(name: str, files: list[list[str]], kept: set[str]) -> str:
    """The row for one table: how many of the table's cells are finished, and what is missing."""
    seeds = [sum(file in kept for file in of) for of in files]
    wanted = {file for of in files for file in of[:SEEDS]}
    missing = wanted - kept
    finished = sum(set(of[:SEEDS]) <= kept for of in files)
    fewer = sum(n > 0 for n in seeds) - finished
    left = hours()[name]["reduced"] * len(missing) / len(wanted)
    command = f"`rampart reproduce {name} --out benchmarks/results/papers --resume`"
    counts = f"{len(files)} | {finished} | {fewer or ''} | {len(wanted & kept)} of {len(wanted)}"
    return f"| `{name}` | {counts} | " + (f"{left:.2g} | {command} |" if missing else "0 | |")


def main() -> None:
    """Writes the page."""
    PATH.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
