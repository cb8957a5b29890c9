"""The command line of `rampart report`."""

import sys
from pathlib import Path
from typing import Annotated

import typer


def report(
    source: Annotated[
        Path, typer.Argument(help="Folder of a run, a matrix or a sweep, or its JSON file.")
    ],
    out: Annotated[Path, typer.Option(help="The HTML file to write.")] = Path("report.html"),
) -> None:
    """Writes a report of a run, a matrix or a sweep as one HTML file that needs no network.

    The report of a run shows the experiment, and which clients were barred, when and why. Charts
    show accuracy, evidence, verdicts and norms over rounds. Every report lists the digests of its
    source files.
    """
    from rampart_fl.services.console.html_report.report import report as made
    from rampart_fl.shared.runtime import durable

    if out.is_dir():
        raise typer.BadParameter(f"--out {out} is a folder; give the name of an HTML file")
    content = made(source)
    durable.make_folder(out.absolute().parent)
    durable.replace(out, [content.encode()])
    sys.stdout.write(f"{out}\n")
