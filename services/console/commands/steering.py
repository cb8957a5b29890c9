"""Commands that list, admit and evict clients, and that pause, resume or end a run."""

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from rampart_fl.services.console.commands.connection import (
    Ca,
    Json,
    Reason,
    Run,
    Token,
    Url,
    WhichRun,
    connect,
    emit,
    say,
)
from rampart_fl.shared.experiment.eviction import Mode
from rampart_fl.shared.protocol.messages import UNSAID, ClientInfo
from rampart_fl.shared.protocol.runs import Member


def clients(
    client: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="One client, over all runs.")
    ] = None,
    run: Run = None,
    everywhere: Annotated[
        bool, typer.Option(help="List the clients of the federation, with labels.")
    ] = False,
    last: Annotated[
        int, typer.Option(min=1, help="With an id: how many of the newest runs to show.")
    ] = 20,
    before: Annotated[
        str | None, typer.Option(metavar="RUN", help="With an id: show runs older than this one.")
    ] = None,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Lists a run's clients: slot, online or not, current activity, and why they are barred.

    With an id, shows what this client did in the newest runs of the federation.
    """
    operator = connect(url, token, ca, run)
    if client is not None:
        if run is not None or everywhere:
            raise typer.BadParameter(
                "a client's history covers all runs; omit --run and --everywhere"
            )
        from rampart_fl.services.console.commands.client_history import show_history

        show_history(operator, client, last, before, as_json)
        return
    if everywhere:
        _enrolled(operator.clients(), as_json)
        return
    found = operator.members()
    if as_json:
        emit([client.model_dump(mode="json") for client in found])
        return
    table = Table()
    for name in ("client", "slot", "online", "software", "ticket", "notes"):
        table.add_column(name, no_wrap=name != "notes", overflow="fold")
    for member in found:
        doing = member.ticket.kind if member.ticket else "-"
        slot = "-" if member.slot is None else str(member.slot)
        online = "yes" if member.online else "no"
        software = member.software or "-"
        table.add_row(member.client_id, slot, online, software, doing, _notes(member))
    Console().print(table)


def _enrolled(found: list[ClientInfo], as_json: bool) -> None:
    """Lists the clients of the federation."""
    if as_json:
        emit([client.model_dump(mode="json") for client in found])
        return
    table = Table()
    for name in ("client", "online", "software", "labels", "barred"):
        table.add_column(name, no_wrap=name == "client", overflow="fold")
    for client in found:
        labels = " ".join(f"{key}={value}" for key, value in client.labels.items())
        barred = "" if client.barred is None else str(client.barred.get("reason", ""))
        online, software = "yes" if client.online else "no", client.software or "-"
        table.add_row(client.client_id, online, software, labels, barred)
    Console().print(table)


def _notes(member: Member) -> str:
    """Why a client declined, or why it is barred and until which round."""
    if member.eviction is not None:
        return f"evicted: {member.eviction.get('reason', '')}"
    if member.quarantine is not None:
        kind = "proposed" if member.quarantine["kind"] == "proposal" else "quarantined"
        until, reason = member.quarantine["until"], member.quarantine["reason"]
        return f"{kind}, until round {until}: {reason}"
    if member.accept is False:
        return f"declined: {member.reason}"
    return "" if member.slot is not None else "accepted"


def proposals(
    run: Run = None, url: Url = None, token: Token = None, ca: Ca = None, as_json: Json = False
) -> None:
    """Lists the evictions that wait for `confirm` or `dismiss`, with their evidence."""
    found = connect(url, token, ca, run).proposals()
    if as_json:
        emit([one.model_dump(mode="json") for one in found])
        return
    for one in found:
        since = f"proposed in round {one.round}, expires in round {one.until}"
        sys.stdout.write(f"{one.client_id} {since}: {one.detector}: {one.reason}\n")
    if not found:
        sys.stdout.write("no proposals\n")


Where = tuple[str | None, str | None, str | None, str | None]
"""The options of a connection: URL, token, CA bundle and run."""
Everywhere = Annotated[
    bool, typer.Option("--everywhere", help="In the whole federation, not only in one run.")
]


def _decide(verb: str, client: str, reason: str, where: Where, as_json: bool) -> None:
    found = connect(*where).decide(client, verb, reason)
    now = "is evicted" if found.evicted else "may take part"
    if found.quarantine is not None:
        now = f"is quarantined until round {found.quarantine['until']}"
    say(as_json, found.model_dump(mode="json"), f"{client} {now}")


def _decide_everywhere(verb: str, client: str, reason: str, where: Where, as_json: bool) -> None:
    found = connect(*where).decide_everywhere(client, verb, reason)
    now = "may take part in runs" if found.barred is None else "is barred from the federation"
    say(as_json, found.model_dump(mode="json"), f"{client} {now}")


def evict(
    client: str,
    reason: Reason = UNSAID,
    everywhere: Everywhere = False,
    run: Run = None,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Evicts a client from a run, or bars it from the whole federation."""
    decide = _decide_everywhere if everywhere else _decide
    decide("evict", client, reason, (url, token, ca, run), as_json)


def reinstate(
    client: str,
    reason: Reason = UNSAID,
    everywhere: Everywhere = False,
    run: Run = None,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Reverses an eviction or a quarantine."""
    decide = _decide_everywhere if everywhere else _decide
    decide("reinstate", client, reason, (url, token, ca, run), as_json)


def confirm(
    client: str,
    reason: Reason = UNSAID,
    run: Run = None,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Confirms a proposal, which evicts the client."""
    _decide("confirm", client, reason, (url, token, ca, run), as_json)


def dismiss(
    client: str,
    reason: Reason = UNSAID,
    run: Run = None,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Dismisses a proposal: readmits the client and discards the evidence."""
    _decide("dismiss", client, reason, (url, token, ca, run), as_json)


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


Labels = Annotated[
    list[str] | None,
    typer.Option("--label", help="Label of the clients, such as site=eu; may be repeated."),
]


def _labels(given: list[str] | None) -> dict[str, str]:
    """Labels from KEY=VALUE."""
    pairs = [text.partition("=") for text in given or []]
    if wrong := [key for key, sign, _ in pairs if not sign]:
        raise typer.BadParameter(f"--label {wrong[0]}: write it as KEY=VALUE")
    return {key: value for key, _, value in pairs}


def label(
    client: str,
    labels: Annotated[list[str] | None, typer.Argument(help="Labels as KEY=VALUE.")] = None,
    reason: Reason = UNSAID,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Replaces a client's labels; later runs use labels to select their clients."""
    found = connect(url, token, ca).label(client, _labels(labels), reason)
    text = " ".join(f"{key}={value}" for key, value in found.labels.items())
    say(as_json, found.model_dump(mode="json"), f"{client} {text or 'has no labels'}")


def tokens(
    count: Annotated[
        int | None, typer.Option(min=1, help="Number of tokens.", show_default="1")
    ] = None,
    lifetime: Annotated[
        float | None,
        typer.Option(min=1, help="Seconds until they expire.", show_default="86400"),
    ] = None,
    revoke: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="Revoke this join token; make no tokens.")
    ] = None,
    label: Labels = None,
    reason: Reason = UNSAID,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Makes join tokens, and prints one per line. Each token lets one client join."""
    if revoke is not None and (count is not None or lifetime is not None):
        raise typer.BadParameter("--revoke makes no tokens; omit --count and --lifetime")
    operator = connect(url, token, ca)
    if revoke is not None:
        operator.revoke_join_token(revoke, reason)
        say(as_json, {"revoked": True}, "the join token is no longer valid")
        return
    made = operator.mint_unbound(count or 1, lifetime or 86_400, reason, _labels(label))
    say(as_json, made.model_dump(mode="json"), "\n".join(made.tokens))


def _steer(verb: str, reason: str, where: Where, as_json: bool) -> None:
    found = connect(*where).steer(verb, reason)
    text = f"{found.run} is {found.state}, round {found.round}"
    say(as_json, found.model_dump(mode="json"), text)


def mode(
    mode: Annotated[Mode, typer.Argument(help="The strongest decision that the run may make.")],
    reason: Reason = UNSAID,
    run: Run = None,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Sets the strongest decision that a run may make about a client, from the next round on."""
    found = connect(url, token, ca, run).switch(mode, reason)
    text = f"{found.run} decides in mode {found.mode} from the next round that closes"
    say(as_json, found.model_dump(mode="json"), text)


def pause(
    run: WhichRun = None,
    reason: Reason = UNSAID,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Pauses a run: no further round opens until `resume`."""
    _steer("pause", reason, (url, token, ca, run), as_json)


def resume(
    run: WhichRun = None,
    reason: Reason = UNSAID,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Resumes a run after `pause`."""
    _steer("resume", reason, (url, token, ca, run), as_json)


def stop(
    run: WhichRun = None,
    reason: Reason = UNSAID,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Ends a run after clients have evaluated the final models; cancels a queued run."""
    _steer("stop", reason, (url, token, ca, run), as_json)
