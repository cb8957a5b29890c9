"""Options, connection and output for all commands that connect to a running federation."""

import json
import socket
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from rampart_fl.services.console.operator import Operator
from rampart_fl.services.console.saved_federation import NAME, SavedFederation, load_all
from rampart_fl.shared.runtime.process import secret

RUNS = Path("runs")
"""Default folder for the runs of `rampart up`."""
OPENED = ExitStack()
"""The connections that this command has opened; they are closed when the command ends."""

Url = Annotated[
    str | None,
    typer.Option(
        envvar="RAMPART_AGGREGATOR",
        help="Aggregator's URL; by default, that of the last `up` or `serve`.",
    ),
]
Token = Annotated[str | None, typer.Option(envvar="RAMPART_OPERATOR_TOKEN", help="Operator token.")]
Ca = Annotated[str | None, typer.Option(envvar="RAMPART_CA_CERTIFICATE", help="CA bundle for TLS.")]
Run = Annotated[
    str | None,
    typer.Option(
        "--run",
        help="Id of a run; by default, the current run, or the newest run if no run is current.",
    ),
]
WhichRun = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN",
        help="Id of a run; by default, the current run, or the newest run if no run is current.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
Reason = Annotated[str, typer.Option(help="Reason, recorded in the audit log.")]
Where = tuple[str | None, str | None, str | None, str | None]
"""The options of a connection: URL, token, CA bundle and run."""


def connect(
    url: str | None,
    token: str | None,
    ca: str | None,
    run: str | None = None,
    patience: float = 10.0,
) -> Operator:
    """Connects an operator to the aggregator and the run that the options specify.

    If the URL or the token is missing, reads it from the newest running federation in ./runs.

    Args:
        url, token, ca, run: the values of the options; None if an option is not given.
        patience: seconds to wait for an aggregator that does not answer.
    """
    token = token or secret("RAMPART_OPERATOR_TOKEN")
    if url is None or token is None:
        known = _newest()
        url, token = url or known.url, token or known.token
    operator = Operator(url, token, ca, patience, run)
    OPENED.callback(operator.close)
    return operator


def _newest() -> SavedFederation:
    """The newest federation in ./runs that listens, or else the newest one.

    A federation whose launcher was killed could not remove its file console.json.
    """
    known = load_all(path.parent for path in RUNS.glob(f"*/{NAME}"))
    if not known:
        raise typer.BadParameter(
            "no federation in ./runs; give --url and --token (RAMPART_AGGREGATOR, "
            "RAMPART_OPERATOR_TOKEN)"
        )
    listening = (one for one in known if len(known) == 1 or _listens(one.url))
    return next(listening, known[0])


def _listens(url: str) -> bool:
    """Whether a process on this machine accepts connections at this URL."""
    place = urlsplit(url)
    try:
        socket.create_connection((place.hostname or "", place.port or 0), timeout=1).close()
    except OSError:
        return False
    return True


def emit(value: Any) -> None:
    """Prints a value as one line of JSON on standard output."""
    sys.stdout.write(json.dumps(value) + "\n")


def say(as_json: bool, value: Any, text: str) -> None:
    """Prints `value` as JSON if `as_json` is true; otherwise prints `text`."""
    sys.stdout.write((json.dumps(value) if as_json else text) + "\n")
