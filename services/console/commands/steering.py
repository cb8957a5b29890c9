"""Commands that list a federation's clients, decide about them, and pause, resume or end it."""

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

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
from rampart_fl.shared.experiment.eviction import Mode
from rampart_fl.shared.protocol.messages import UNSAID, ClientInfo


def clients(url: Url = None, token: Token = None, ca: Ca = None, as_json: Json = False) -> None:
    """Lists the clients: whether they are online, what they do, and why they are barred."""
    found = connect(url, token, ca).clients()
    if as_json:
        emit([client.model_dump(mode="json") for client in found])
        return
    table = Table()
    for name in ("client", "online", "ticket", "barred"):
        table.add_column(name, no_wrap=name != "barred", overflow="fold")
    for client in found:
        doing = client.ticket.kind if client.ticket else "-"
        online = "yes" if client.online else "no"
        table.add_row(client.client_id, online, doing, _barred(client))
    Console().print(table)


def _barred(client: ClientInfo) -> str:
    """Whether a client is barred, for how long, and why."""
    if client.eviction is not None:
        return f"evicted: {client.eviction.get('reason', '')}"
    if client.quarantine is None:
        return ""
    kind = "proposed" if client.quarantine["kind"] == "proposal" else "quarantined"
    return f"{kind}, until round {client.quarantine['until']}: {client.quarantine['reason']}"


def proposals(url: Url = None, token: Token = None, ca: Ca = None, as_json: Json = False) -> None:
    """Lists the evictions that wait for `confirm` or `dismiss`, with their evidence."""
    found = connect(url, token, ca).proposals()
    if as_json:
        emit([one.model_dump(mode="json") for one in found])
        return
    for one in found:
        since = f"proposed in round {one.round}, dismissed with round {one.until}"
        sys.stdout.write(f"{one.client_id} {since}: {one.detector}: {one.reason}\n")
    if not found:
        sys.stdout.write("no proposal waits\n")


def _decide(
    verb: str,
    client: str,
    reason: str,
    where: tuple[str | None, str | None, str | None],
    as_json: bool,
) -> None:
    found = connect(*where).decide(client, verb, reason)
    now = "is evicted" if found.evicted else "may take part"
    if found.quarantine is not None:
        now = f"is quarantined until round {found.quarantine['until']}"
    say(as_json, found.model_dump(mode="json"), f"{client} {now}")


def evict(
    client: str,
    reason: Reason = UNSAID,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Evicts a client from the federation."""
    _decide("evict", client, reason, (url, token, ca), as_json)


def reinstate(
    client: str,
    reason: Reason = UNSAID,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Reverses an eviction or a quarantine."""
    _decide("reinstate", client, reason, (url, token, ca), as_json)


def confirm(
    client: str,
    reason: Reason = UNSAID,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Confirms a proposal: evicts its client."""
    _decide("confirm", client, reason, (url, token, ca), as_json)


def dismiss(
    client: str,
    reason: Reason = UNSAID,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Dismisses a proposal: takes its client back, and discards the evidence."""
    _decide("dismiss", client, reason, (url, token, ca), as_json)


def revoke(
    client: str,
    reason: Reason = UNSAID,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Revokes a client's token at once, for example after a leak. Evicts nobody."""
    connect(url, token, ca).revoke(client, reason)
    text = f"the token of {client} is no longer valid"
    say(as_json, {"client_id": client, "revoked": True}, text)


def tokens(
    count: Annotated[
        int | None, typer.Option(min=1, help="Number of tokens.", show_default="1")
    ] = None,
    lifetime: Annotated[
        float | None,
        typer.Option(min=1, help="Seconds until they expire.", show_default="86400"),
    ] = None,
    revoke: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="Revoke this join token; make none.")
    ] = None,
    reason: Reason = UNSAID,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Makes join tokens, and prints one per line. Each token lets one client join."""
    if revoke is not None and (count is not None or lifetime is not None):
        raise typer.BadParameter("--revoke makes no tokens; leave --count and --lifetime out")
    operator = connect(url, token, ca)
    if revoke is not None:
        operator.revoke_join_token(revoke, reason)
        say(as_json, {"revoked": True}, "the join token is no longer valid")
        return
    made = operator.mint_unbound(count or 1, lifetime or 86_400, reason)
    say(as_json, made.model_dump(mode="json"), "\n".join(made.tokens))


def _steer(
    verb: str, reason: str, where: tuple[str | None, str | None, str | None], as_json: bool
) -> None:
    found = connect(*where).steer(verb, reason)
    text = f"{found.name} is {found.status}, round {found.round}, {found.phase}"
    say(as_json, found.model_dump(mode="json"), text)


def mode(
    mode: Annotated[
        Mode, typer.Argument(help="The strongest decision that the federation may take.")
    ],
    reason: Reason = UNSAID,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Sets the strongest decision that the federation may take, from the next decided round on."""
    found = connect(url, token, ca).switch(mode, reason)
    text = f"{found.name} decides in mode {found.mode} from the next round that closes"
    say(as_json, found.model_dump(mode="json"), text)


def pause(
    reason: Reason = UNSAID,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Pauses the federation: no further round opens until `resume`."""
    _steer("pause", reason, (url, token, ca), as_json)


def resume(
    reason: Reason = UNSAID,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Resumes the federation after `pause`."""
    _steer("resume", reason, (url, token, ca), as_json)


def stop(
    reason: Reason = UNSAID,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Ends the federation, after clients have evaluated the final models."""
    _steer("stop", reason, (url, token, ca), as_json)
