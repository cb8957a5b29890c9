"""`rampart operators`: lists operators, adds one, or revokes an operator's token."""

import re
import sys
import time
from datetime import UTC, datetime
from typing import Annotated

import typer

from rampart_fl.services.console.commands.connection import (
    Ca,
    Json,
    Reason,
    Token,
    Url,
    connect,
    emit,
    say,
)
from rampart_fl.services.console.display.tables import print_table
from rampart_fl.shared.protocol.operators import OperatorInfo, Role
from rampart_fl.shared.protocol.reasons import NO_REASON

operators = typer.Typer(
    help="Lists operators, adds one, or revokes an operator's token.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def parse_duration(text: str) -> float:
    """Converts a duration to seconds.

    >>> parse_duration("30d"), parse_duration("1.5h"), parse_duration("90s")
    (2592000.0, 5400.0, 90.0)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)
    if match is None or float(match[1]) == 0:
        raise typer.BadParameter(
            f"{text!r} is not a duration with a unit; examples: 30d, 12h, 90m, 3600s"
        )
    return float(match[1]) * SECONDS[match[2]]


@operators.callback(invoke_without_command=True)
def default(
    context: typer.Context,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Lists operators, adds one, or revokes an operator's token."""
    if context.invoked_subcommand is None:
        list_(url, token, ca, as_json)
        return
    sources = {name: context.get_parameter_source(name) for name in context.params}
    if any(source is not None and source.name == "COMMANDLINE" for source in sources.values()):
        raise typer.BadParameter(f"write the options after {context.invoked_subcommand!r}")


@operators.command("list")
def list_(url: Url = None, token: Token = None, ca: Ca = None, as_json: Json = False) -> None:
    """Lists the named operators: role, who added them, and whether their tokens are valid."""
    infos = connect(url, token, ca).operators()
    if as_json:
        emit([one.model_dump(mode="json") for one in infos])
        return
    if not infos:
        sys.stdout.write("no named operators, only the owner\n")
        return
    print_table(
        ("operator", "role", "added", "by", "token"),
        [
            (one.name, one.role, _moment(one.created_at), one.created_by, _validity(one))
            for one in infos
        ],
        text={"added", "token"},
    )


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _validity(one: OperatorInfo) -> str:
    """A token's status as text (valid, expired or revoked), with the time."""
    if one.revoked_at is not None:
        return f"revoked {_moment(one.revoked_at)}"
    if one.expires_at is None:
        return "valid until revoked"
    word = "valid until" if one.expires_at > time.time() else "expired"
    return f"{word} {_moment(one.expires_at)}"


@operators.command()
def add(
    name: str,
    role: Annotated[
        Role, typer.Option(help="A viewer may only read; an operator may also change things.")
    ],
    expires: Annotated[
        str | None,
        typer.Option(
            help="Lifetime of the token, such as 30d, 12h or 90m; by default, the token is valid "
            "until it is revoked."
        ),
    ] = None,
    reason: Reason = NO_REASON,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Adds an operator, and prints the operator's token, which is shown only once."""
    lifetime = None if expires is None else parse_duration(expires)
    made = connect(url, token, ca).add_operator(name, role, lifetime, reason)
    say(as_json, made.model_dump(mode="json"), made.token)


@operators.command()
def revoke(
    name: str,
    reason: Reason = NO_REASON,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Revokes an operator's token at once."""
    connect(url, token, ca).revoke_operator(name, reason)
    say(as_json, {"name": name, "revoked": True}, f"{name} is no longer an operator")
