"""Options, connection and output for all commands that connect to a running federation."""

import json
import os
import socket
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from rampart_fl.services.console.connection.operator import Operator
from rampart_fl.services.console.connection.saved_federation import NAME, SavedFederation, load_all
from rampart_fl.shared.runtime.process import secret

RUNS = Path("runs")
"""Default folder for the runs of `rampart up`."""
FEDERATION = "RAMPART_FEDERATION"
"""Environment variable that names the folder of a federation, for `serve` and for all commands that
connect to the federation."""
LOOPBACK = {"127.0.0.1", "::1", "localhost"}
"""Names of this machine in URLs."""
PATIENCE = 60.0
"""Seconds that `tokens`, `run`, `watch` and `track` wait for an aggregator that is starting."""
OPENED = ExitStack()
"""The connections that this command has opened; they are closed when the command ends."""

Url = Annotated[
    str | None,
    typer.Option(
        envvar="RAMPART_AGGREGATOR",
        help="Aggregator's URL; by default, the URL that is saved in the folder that "
        "RAMPART_FEDERATION names. If this variable is not set, the URL that is saved in ./runs.",
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        envvar="RAMPART_OPERATOR_TOKEN",
        help="Operator token; by default, the one that `up` or `serve` saved for the URL.",
    ),
]
Ca = Annotated[str | None, typer.Option(envvar="RAMPART_CA_CERTIFICATE", help="CA bundle for TLS.")]
RUN_HELP = "Id of a run; by default, the current run, or the newest run if no run is current."
Run = Annotated[str | None, typer.Option("--run", help=RUN_HELP)]
WhichRun = Annotated[str | None, typer.Argument(metavar="RUN", help=RUN_HELP)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
Reason = Annotated[str, typer.Option(help="Reason, recorded in the audit log.")]
Where = tuple[str | None, str | None, str | None]
"""The options of a connection: URL, token and CA bundle."""


def connect(url: str | None, token: str | None, ca: str | None, patience: float = 10.0) -> Operator:
    """Connects an operator to the aggregator that the options specify.

    Without a URL, connects to the federation in the folder that RAMPART_FEDERATION names. If this
    variable is not set, connects to the newest running federation in ./runs. Without a token, uses
    the token saved with the URL.

    Args:
        url, token, ca: the values of the options; None if an option is not given.
        patience: seconds to wait for an aggregator that does not answer.
    Raises:
        BadParameter: an option is empty, or there is no URL with a matching token in the options
            and the saved federations.
    """
    for option, value in (("--url", url), ("--token", token)):
        if value == "":
            raise typer.BadParameter(f"{option} is empty")
    where = _address(url, token or secret("RAMPART_OPERATOR_TOKEN"))
    operator = Operator(where.url, where.token, ca, patience)
    OPENED.callback(operator.close)
    return operator


def _address(url: str | None, token: str | None) -> SavedFederation:
    """The URL and the token to use; a saved federation supplies what is missing.

    A token is a secret of one federation. A saved token is therefore sent only to the address that
    was saved with it. If a token is given without a URL, it is sent only to a saved address on this
    machine, because a file console.json of unknown origin could name any address.
    """
    if url is not None and token is not None:
        return SavedFederation(url, token)
    folder = os.environ.get(FEDERATION)
    folders = [Path(folder)] if folder else [path.parent for path in RUNS.glob(f"*/{NAME}")]
    known, place = load_all(folders), folder or "./runs"
    if url is not None:
        same = [one for one in known if one.url.rstrip("/") == url.rstrip("/")]
        if not same:
            raise typer.BadParameter(
                f"give --token for {url} (or set RAMPART_OPERATOR_TOKEN): no token for this URL "
                f"is saved in {place}"
            )
        return same[0]
    if not known:
        raise typer.BadParameter(
            f"no federation in {place}; set {FEDERATION} to the folder of a running federation, "
            "or give --url and --token (RAMPART_AGGREGATOR, RAMPART_OPERATOR_TOKEN)"
        )
    newest = _newest(known)
    if token is None:
        return newest
    if urlsplit(newest.url).hostname not in LOOPBACK:
        raise typer.BadParameter(
            f"give --url for the token: the address {newest.url} that is saved in {place} is not "
            "on this machine"
        )
    return newest._replace(token=token)


def _newest(known: list[SavedFederation]) -> SavedFederation:
    """The first federation in `known` that accepts connections; if none does, the first in `known`.

    The newest federation comes first in `known`. Some of these federations may no longer run: a
    launcher that was killed could not remove its file console.json.
    """
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
