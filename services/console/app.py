"""All commands of `rampart`, and how the program ends when a command fails."""

import os
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from rampart_fl.services.console.commands.audit import audit
from rampart_fl.services.console.commands.certify import certify
from rampart_fl.services.console.commands.clients import clients
from rampart_fl.services.console.commands.compare import compare
from rampart_fl.services.console.commands.connection import OPENED
from rampart_fl.services.console.commands.data import data
from rampart_fl.services.console.commands.decisions import (
    confirm,
    dismiss,
    evict,
    mode,
    proposals,
    reinstate,
)
from rampart_fl.services.console.commands.enrolment import label, revoke, tokens
from rampart_fl.services.console.commands.export import export
from rampart_fl.services.console.commands.matrix import matrix
from rampart_fl.services.console.commands.monitoring import rounds, status, watch
from rampart_fl.services.console.commands.operators import operators
from rampart_fl.services.console.commands.report import report
from rampart_fl.services.console.commands.reproduce import reproduce
from rampart_fl.services.console.commands.roles import roles
from rampart_fl.services.console.commands.runs import delete, run, runs
from rampart_fl.services.console.commands.serve import serve, shutdown
from rampart_fl.services.console.commands.simulate import simulate
from rampart_fl.services.console.commands.steering import pause, resume, stop
from rampart_fl.services.console.commands.track import track
from rampart_fl.services.console.commands.up import up
from rampart_fl.shared.errors import RampartError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rampart-fl {version('rampart-fl')}")
        raise typer.Exit


@app.callback()
def rampart(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Byzantine-robust, personalized federated learning."""


for executing in (up, serve, shutdown, run, runs, pause, resume, stop, delete):
    app.command()(executing)
for following in (status, rounds, watch, compare, export):
    app.command()(following)
for deciding in (clients, evict, reinstate, proposals, confirm, dismiss, mode):
    app.command()(deciding)
for enrolling in (tokens, label, revoke):
    app.command()(enrolling)
app.command()(audit)
for offline in (simulate, matrix, reproduce, report, track, certify, roles):
    app.command()(offline)
app.add_typer(data, name="data")
app.add_typer(operators, name="operators")


def run_command() -> None:
    """Runs the command; on failure, prints the reason on standard error and exits with code 1.

    An interrupted command exits with code 130.
    """
    try:
        with OPENED:
            app()
    except RampartError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(1)
    except SystemExit as ended:
        if ended.code == 130:  # Typer's exit code for an interrupt.
            sys.stderr.write("interrupted\n")
        raise
    except BrokenPipeError:
        os._exit(0)
    except OSError as error:  # For example, the command cannot write to a folder.
        sys.stderr.write(f"error: {error}\n")
        sys.exit(1)
