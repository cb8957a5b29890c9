"""`rampart audit`: lists operators' actions, and verifies that the audit log is unaltered."""

import re
import sys
from typing import Annotated, Any

import typer

from rampart_fl.services.console.commands.connection import (
    Ca,
    Json,
    Token,
    Url,
    connect,
    emit,
    say,
)
from rampart_fl.shared.protocol.audit import AuditEntry, check_chain


def audit(
    kept: Annotated[
        str | None,
        typer.Argument(
            metavar="[H]",
            help="A head that you stored earlier; check that it is a head of this log.",
        ),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check that no entry was altered or removed.")
    ] = False,
    head: Annotated[
        bool,
        typer.Option(
            "--head", help="Print the head of the log, so that you can store it elsewhere."
        ),
    ] = False,
    since: Annotated[int, typer.Option(min=0, help="Number of the first entry to list.")] = 0,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Lists operators' actions (who, when, what, and why), or verifies the whole audit log.

    With `--verify --head H`, the check also detects entries missing at the end of the log.
    """
    if kept is not None and not verify:
        raise typer.BadParameter("--head needs --verify")
    if kept is not None and not re.fullmatch("[0-9a-f]{64}", kept):
        raise typer.BadParameter(
            f"{kept!r} is not a head of an audit log: a head has 64 hexadecimal digits, in lower "
            "case, as printed by `rampart audit --head`"
        )
    if since and (verify or head):
        raise typer.BadParameter("--verify and --head need the whole log; omit --since")
    operator = connect(url, token, ca)
    if verify or head:
        # This machine verifies the entries itself, so that it need not trust the aggregator.
        count, last = check_chain(operator.audit(), kept)
        text = f"{count} entries, none altered or missing; the head is {last}"
        say(as_json, {"entries": count, "head": last}, text if verify else last)
        return
    entries = operator.audit(since)
    if as_json:
        emit([entry.model_dump(mode="json") for entry in entries])
        return
    for entry in entries:
        sys.stdout.write(_line(entry) + "\n")


def _line(entry: AuditEntry) -> str:
    details = [text for name, value in entry.details.items() for text in _details(name, value)]
    words = [str(entry.number), entry.time, entry.actor, " ".join((entry.act, entry.target))]
    return "  ".join(part.rstrip() for part in [*words, *details, entry.reason] if part)


def _details(name: str, value: Any) -> list[str]:
    """An entry's detail as text: NAME=VALUE, or KEY=VALUE for each item of a table.

    >>> _details("labels", {"ward": "icu", "site": "us"}), _details("client_ids", ["a", "b"])
    (['site=us', 'ward=icu'], ['client_ids=a,b'])
    """
    if isinstance(value, dict):
        return [f"{key}={item}" for key, item in sorted(value.items())]
    if isinstance(value, list):
        value = ",".join(map(str, value))
    return [] if value is None else [f"{name}={value}"]
