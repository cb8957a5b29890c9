"""Commands that list a federation's clients, decide about them, and pause, resume or end it."""

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from services.console.connection import Ca, Json, Reason, Token, Url, connect, emit, say


def clients(url: Url = None, token: Token = None, ca: Ca = None, as_json: Json = False) -> None:
    """Lists the clients: online or not, what they are doing, why they were evicted."""
    found = connect(url, token, ca).clients()
    if as_json:
        emit([client.model_dump(mode="json") for client in found])
        return
    table = Table()
    for name in ("client", "online", "ticket", "evicted"):
        table.add_column(name)
    for client in found:
        why = (client.eviction or {}).get("reason", "")
        doing = client.ticket.kind if client.ticket else "-"
        table.add_row(client.client_id, "yes" if client.online else "no", doing, str(why))
    Console().print(table)


def _decide(
    verb: str,
    client: str,
    reason: str,
    where: tuple[str | None, str | None, str | None],
    as_json: bool,
) -> None:
    found = connect(*where).decide(client, verb, reason)
    now = "is evicted" if found.evicted else "may take part"
    say(as_json, found.model_dump(mode="json"), f"{client} {now}")


def evict(
    client: str,
    reason: Reason = "operator's decision",
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Bars a client from the federation."""
    _decide("evict", client, reason, (url, token, ca), as_json)


def reinstate(
    client: str,
    reason: Reason = "operator's decision",
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Takes an eviction back."""
    _decide("reinstate", client, reason, (url, token, ca), as_json)


def revoke(
    client: str, url: Url = None, token: Token = None, ca: Ca = None, as_json: Json = False
) -> None:
    """Ends a client's token at once, should others have got hold of it; evicts nobody."""
    connect(url, token, ca).revoke(client)
    text = f"the token of {client} is worth nothing any more"
    say(as_json, {"client_id": client, "revoked": True}, text)


def tokens(
    count: Annotated[int, typer.Option(min=1, help="How many.")] = 1,
    lifetime: Annotated[float, typer.Option(min=1, help="Seconds until they expire.")] = 86_400,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Makes join tokens, one a line; each lets one client join."""
    made = connect(url, token, ca).mint_unbound(count, lifetime)
    say(as_json, made.model_dump(mode="json"), "\n".join(made.tokens))


def _steer(verb: str, url: str | None, token: str | None, ca: str | None, as_json: bool) -> None:
    found = connect(url, token, ca).steer(verb)
    text = f"{found.name} is {found.status}, round {found.round}, {found.phase}"
    say(as_json, found.model_dump(mode="json"), text)


def pause(url: Url = None, token: Token = None, ca: Ca = None, as_json: Json = False) -> None:
    """Opens no further round until `resume`."""
    _steer("pause", url, token, ca, as_json)


def resume(url: Url = None, token: Token = None, ca: Ca = None, as_json: Json = False) -> None:
    """Goes on after `pause`."""
    _steer("resume", url, token, ca, as_json)


def stop(url: Url = None, token: Token = None, ca: Ca = None, as_json: Json = False) -> None:
    """Ends the federation: clients evaluate the final models, then all are done."""
    _steer("stop", url, token, ca, as_json)
