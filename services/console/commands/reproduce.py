"""The command line of `rampart reproduce`."""

import json
import shlex
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rampart_fl.services.console.commands.connection import Json, emit
from rampart_fl.services.console.commands.failures import exit_if_failed
from rampart_fl.services.console.commands.parallel import Gpus, Jobs, Ray
from rampart_fl.services.console.commands.unused import refuse_unused
from rampart_fl.services.console.display.tables import print_table
from rampart_fl.shared.errors import ConfigurationError

if TYPE_CHECKING:
    from rampart_fl.services.console.studies.reproduction.definition import Definition, Scale
    from rampart_fl.services.console.studies.reproduction.report import CellResult

ALL = "all"
"""The name that selects every table."""
SHOWN = ("reduced", "full")
"""The scales for which the option `--list` shows estimated hours."""


def reproduce(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(help=f"A table, such as fedcap-table-1, or {ALL}; see --list.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the tables.")] = False,
    scale: Annotated[
        Literal["full", "reduced", "smoke"],
        typer.Option(
            help="full is the paper's protocol, reduced is a smaller protocol, and smoke is one "
            "short run."
        ),
    ] = "reduced",
    seeds: Annotated[
        int,
        typer.Option(
            min=1,
            help="Number of runs per cell, with consecutive seeds; always 1 at the scale smoke.",
        ),
    ] = 3,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="AXIS=CHOICE: run only the cells with this choice, even cells that the "
            "reduced scale leaves out; may be repeated."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the table, the figure and the finished cells.")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue with the finished cells and checkpoints in OUT."),
    ] = False,
    jobs: Jobs = 1,
    ray: Ray = None,
    gpus: Gpus = None,
    device: Annotated[
        str, typer.Option(envvar="RAMPART_DEVICE", help="Device: cpu, cuda, cuda:1.")
    ] = "cpu",
    as_json: Json = False,
) -> None:
    """Recomputes a paper's table; writes the results next to the paper's values, with a plot.

    Stores the results of every finished run in OUT/cells, under the digest of its experiment. If a
    cell cannot be run, the table states the reason.
    """
    from rampart_fl.services.console import downloads
    from rampart_fl.services.console.folder_lock import locked
    from rampart_fl.services.console.studies.batch import failed
    from rampart_fl.services.console.studies.pools import pool
    from rampart_fl.services.console.studies.reproduction.cells import cells
    from rampart_fl.services.console.studies.reproduction.files import load, names
    from rampart_fl.services.console.studies.reproduction.report import outcome
    from rampart_fl.services.console.studies.reproduction.runs import run
    from rampart_fl.shared.runtime.device import device as usable

    if list_:
        others = set(context.params) - {"list_", "as_json"}
        refuse_unused(context, "--list only lists the tables", *others)
        _list(as_json)
        return
    if name is None or out is None:
        raise typer.BadParameter("give the name of a table and --out, or give --list")
    where = pool(jobs, ray, gpus=gpus, device=device)
    if ray is None:
        usable(device)
    picked = _choices(only or [])
    tables = {one: load(one) for one in (names() if name == ALL else [name])}
    planned = {one: cells(table, scale, seeds, picked) for one, table in tables.items()}
    with locked(out):
        if ray is None:
            needed = (cell.runs[0] for cells in planned.values() for cell in cells if cell.runs)
            # Ignore a missing data set here: each cell that needs this data set reports the error.
            with suppress(ConfigurationError):
                downloads.fetch_all(needed)
        runs: list[dict[str, Any]] = []
        for one, table in tables.items():
            results = run(
                planned[one],
                out,
                title=one,
                resume=resume or one != next(iter(tables)),
                pool=where,
                device=device,
            )
            outcomes = [outcome(cell, results) for cell in planned[one]]
            command = _command(one, scale, seeds, only or [])
            _report(out, one, table, scale, outcomes, command, as_json)
            runs += [run for cell in outcomes for run in cell.runs]
    exit_if_failed(sum(map(failed, runs)), len(runs))


def _report(
    out: Path,
    name: str,
    table: "Definition",
    scale: "Scale",
    outcomes: "list[CellResult]",
    command: str,
    as_json: bool,
) -> None:
    """Writes a table to the folder, and prints it."""
    from rampart_fl.services.console.studies.plots import MatplotlibMissing
    from rampart_fl.services.console.studies.reproduction.report import markdown, plain, write

    try:
        write(out, name, table, scale, outcomes, command)
    except MatplotlibMissing as missing:
        sys.stderr.write(f"{missing}\n")
    about = {"table": name, "scale": scale, "command": command, "cells": plain(outcomes)}
    shown = json.dumps(about) if as_json else markdown(table, scale, outcomes, command)
    sys.stdout.write(shown + "\n")


def _choices(only: list[str]) -> dict[str, list[str]]:
    """The choices to which `--only` restricts a table, keyed by axis."""
    picked: dict[str, list[str]] = {}
    for text in only:
        axis, equals, choice = text.partition("=")
        if not equals:
            raise ConfigurationError(f"--only {text}: write AXIS=CHOICE")
        picked.setdefault(axis, []).append(choice)
    return picked


def _command(name: str, scale: str, seeds: int, only: list[str]) -> str:
    """The command that recomputes the table."""
    words = ["rampart", "reproduce", name, "--scale", scale]
    if scale != "smoke":
        words += ["--seeds", str(seeds)]
    for text in only:
        words += ["--only", text]
    return shlex.join([*words, "--out", "OUT"])


def _list(as_json: bool) -> None:
    from rampart_fl.services.console.studies.reproduction.files import hours, load, names

    rows, known = [], hours()
    for name in names():
        definition = load(name)
        grid = [definition.refusal(at, "full") for at in definition.grid()]
        rows.append(
            {
                "name": name,
                "title": definition.title,
                "cells": len(grid),
                "impossible": sum(reason is not None for reason in grid),
                "hours": known.get(name, {}),
                "axes": {axis: list(of) for axis, of in definition.axes.items()},
            }
        )
    if as_json:
        emit(rows)
        return
    cells = list[tuple[str, ...]]()
    for row in rows:
        about = [str(known.get(str(row["name"]), {}).get(scale, "-")) for scale in SHOWN]
        impossible = str(row["impossible"] or "-")
        cells.append((str(row["name"]), str(row["cells"]), impossible, *about, str(row["title"])))
    print_table(
        ("table", "cells", "cannot\nbe run", "h\nreduced", "h\nfull", "what"),
        cells,
        text={"what"},
        notes=[
            "h: hours on one core with three seeds, estimated from single rounds of a few cells "
            "(benchmarks/hours.py); - if no round has been timed"
        ],
    )
