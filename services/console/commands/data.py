"""`rampart data`: lists data sets with their sources, and shows each client's share of the data."""

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rampart_fl.services.console.commands.connection import Json, emit
from rampart_fl.services.console.display.progress import Progress
from rampart_fl.services.console.display.tables import print_table
from rampart_fl.services.console.display.terminal import terminal
from rampart_fl.shared.errors import ConfigurationError, RampartError, explained

if TYPE_CHECKING:
    from rampart_fl.shared.learning.data.datasets import Dataset, Source

data = typer.Typer(
    no_args_is_help=True,
    help="Lists, fetches, checks and shows data sets.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@data.command("list")
def list_(as_json: Json = False) -> None:
    """Lists all data sets: samples, shape, classes, source, and whether each is on this machine."""
    from rampart_fl.shared.learning.data.datasets import datasets

    rows = [_about(datasets.build(name)) for name in datasets.names()]
    if as_json:
        emit(rows)
        return
    cells = [
        (
            row["name"],
            "any" if row["samples"] is None else f"{row['samples']:,}",
            "x".join(map(str, row["shape"])),
            str(row["classes"]),
            _availability(row),
            f"{row['source']}: {row['place']}",
        )
        for row in rows
    ]
    headings = ("data set", "samples", "shape", "classes", "here", "from")
    print_table(headings, cells, text={"from"})


def _availability(row: dict[str, Any]) -> str:
    """Whether a data set is on this machine; if only a part is, the number of all samples."""
    samples, total = row["samples"], row["total"]
    if not row["present"]:
        return "no"
    return f"of {total:,}" if total and samples != total else "yes"


@data.command()
def fetch(
    names: Annotated[list[str], typer.Argument(help="Data sets.")], as_json: Json = False
) -> None:
    """Downloads missing data sets to the cache. Exits with code 1 if a data set is unavailable."""

    def one(name: str) -> dict[str, Any]:
        from rampart_fl.services.console import downloads
        from rampart_fl.shared.learning.data.datasets import datasets

        path = downloads.fetch(datasets.build(name))
        return {"name": name, "path": None if path is None else str(path)}

    _each(
        names,
        one,
        lambda row: f"{row['name']}: {row['path'] or 'needs no file'}",
        as_json,
        counts=False,
    )


@data.command()
def check(
    names: Annotated[
        list[str] | None, typer.Argument(help="Data sets; by default, every one on this machine.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Loads data sets; checks declared shape and classes, types, and that all values are finite.

    Prints the number of samples per class, the number of users, and the range of values. Exits with
    code 1 if a data set is missing or wrong.
    """
    from rampart_fl.shared.learning.data import checked_samples
    from rampart_fl.shared.learning.data.datasets import datasets

    here = [name for name in datasets.names() if _source(datasets.build(name)).present]

    def one(name: str) -> dict[str, Any]:
        member = datasets.build(name)
        source = _source(member)
        if not source.present and source.kind != "you":
            raise ConfigurationError(
                f"data set {name!r} is missing; `rampart data fetch {name}` gets it from "
                f"{source.kind}: {source.place}"
            )
        # The user has to provide the files of some data sets. If such a file is missing, `load`
        # raises an error that says where to put the file.
        samples = checked_samples.load(member)
        counts = samples.y.bincount(minlength=member.classes).tolist()
        return {
            "name": name,
            "place": source.place,
            "samples": len(samples.y),
            "classes": counts,
            "users": None if samples.groups is None else len(set(samples.groups.tolist())),
            "low": float(samples.x.min()) / samples.scale,
            "high": float(samples.x.max()) / samples.scale,
        }

    def as_line(row: dict[str, Any]) -> str:
        counts = row["classes"]
        empty = counts.count(0)
        return (
            f"{row['name']}: {row['samples']:,} samples, {len(counts)} classes of "
            f"{min(counts)} to {max(counts)}"
            + (f" ({empty} empty)" if empty else "")
            + (f", {row['users']} users" if row["users"] else "")
            + f", numbers {row['low']:.4g} to {row['high']:.4g}; {row['place']}"
        )

    _each(names or here, one, as_line, as_json)


@data.command()
def show(
    experiment: Annotated[
        str, typer.Argument(help="An experiment file, or the name of a shipped experiment.")
    ],
    png: Annotated[Path | None, typer.Option(help="Write the heat map to this PNG file.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Random seed.")] = None,
    as_json: Json = False,
) -> None:
    """Shows each client's number of samples per class; for a sweep, uses the base experiment."""
    from rampart_fl.services.console.studies.class_counts import (
        count_classes,
        picture,
        table,
        tables,
    )
    from rampart_fl.shared.experiment import Experiment
    from rampart_fl.shared.experiment.sweep import Sweep

    if png is not None and png.suffix.lower() != ".png":
        raise typer.BadParameter(f"--png {png}: the name of a PNG file ends in .png")
    sweep = Sweep.load(experiment)
    chosen = Experiment.load(experiment) if sweep is None else sweep.base
    if seed is not None:
        chosen = Experiment.from_tables({**chosen.tables(), "seed": seed})
    clients = count_classes(chosen)
    if png is not None:
        picture(chosen, clients, png)
    if as_json:
        emit(tables(chosen, clients))
    else:
        terminal().print(table(chosen, clients))


def _source(member: "Dataset") -> "Source":
    with member.own_errors():
        return member.source()


def _about(member: "Dataset") -> dict[str, Any]:
    from rampart_fl.shared.learning.data.datasets.files import sample_count

    source = _source(member)
    there = (
        sample_count(Path(source.place))
        if source.present and source.place.endswith(".npz")
        else None
    )
    return {
        "name": member.name,
        "samples": there or member.total or None,
        "total": member.total or None,
        "shape": list(member.shape),
        "classes": member.classes,
        "licence": member.licence,
        "present": source.present,
        "source": source.kind,
        "place": source.place,
    }


def _each(
    names: Sequence[str],
    one: Callable[[str], dict[str, Any]],
    as_line: Callable[[dict[str, Any]], str],
    as_json: bool,
    counts: bool = True,
) -> None:
    """Calls the function `one` for every name, and prints each result or error.

    If the call fails for a name, the command continues with the other names, and exits with code 1
    at the end. If `counts` is true, a progress bar counts the names. If `one` shows its own
    progress, set `counts` to False.
    """
    rows: list[dict[str, Any]] = []
    failed = 0
    with Progress("data sets", len(names)) if counts else nullcontext() as progress:
        for number, name in enumerate(names):
            if progress is not None:
                progress.show(number, label=name)
            try:
                rows.append(one(name))
            except Exception as error:  # The code of a user's data set may raise anything.
                message = str(error) if isinstance(error, RampartError) else explained(error)
                if message is None:
                    raise
                failed += 1
                sys.stderr.write(f"error: {message}\n")
            else:
                if not as_json:
                    sys.stdout.write(as_line(rows[-1]) + "\n")
                    sys.stdout.flush()
            if progress is not None:
                progress.show(number + 1, label=name, line=f"data sets, {name} was the last")
    if as_json:
        emit(rows)
    if failed:
        raise typer.Exit(1)
