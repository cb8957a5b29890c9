"""`rampart clients`: lists the clients of a run or of the federation."""

from typing import Annotated

import typer

from rampart_fl.services.console.commands.connection import Ca, Json, Run, Token, Url, connect, emit
from rampart_fl.services.console.commands.unused import refuse_unused
from rampart_fl.services.console.display.tables import print_table
from rampart_fl.shared.protocol.clients import ClientInfo
from rampart_fl.shared.protocol.runs import Member


def clients(
    context: typer.Context,
    client: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Show one client, over all runs.")
    ] = None,
    run: Run = None,
    everywhere: Annotated[
        bool, typer.Option(help="List the clients of the federation, with labels.")
    ] = False,
    last: Annotated[
        int, typer.Option(min=1, help="With a client id: number of its newest runs to show.")
    ] = 20,
    before: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="With a client id: show only its runs older than this run (id or number).",
        ),
    ] = None,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Lists a run's clients: slot, whether online, current activity, and why the client is barred.

    With a client's id, shows what this client did in the newest runs of the federation.
    """
    if client is None:
        refuse_unused(context, "only a client's history covers several runs", "last", "before")
    else:
        refuse_unused(context, "a client's history covers all runs", "run", "everywhere")
    if everywhere:
        refuse_unused(context, "--everywhere lists the clients of all runs", "run")
    operator = connect(url, token, ca)
    if client is not None:
        from rampart_fl.services.console.commands.client_history import show_history

        show_history(operator, client, last, before, as_json)
        return
    if everywhere:
        _print_clients(operator.clients(), as_json)
        return
    members = operator.run(run).members()
    if as_json:
        emit([client.model_dump(mode="json") for client in members])
        return
    print_table(
        ("client", "slot", "online", "software", "ticket"),
        [
            (
                member.client_id,
                "-" if member.slot is None else str(member.slot),
                "yes" if member.online else "no",
                member.software or "-",
                member.ticket.kind if member.ticket else "-",
            )
            for member in members
        ],
        text={"software"},
        notes=[f"{member.client_id} {note}" for member in members if (note := _note(member))],
    )


def _print_clients(infos: list[ClientInfo], as_json: bool) -> None:
    """Lists the clients of the federation."""
    if as_json:
        emit([client.model_dump(mode="json") for client in infos])
        return
    print_table(
        ("client", "online", "software", "labels"),
        [
            (
                client.client_id,
                "yes" if client.online else "no",
                client.software or "-",
                " ".join(f"{key}={value}" for key, value in client.labels.items()),
            )
            for client in infos
        ],
        text={"software", "labels"},
        notes=[f"{one.client_id} barred: {one.barred.reason}" for one in infos if one.barred],
    )


def _note(member: Member) -> str:
    """A note on a client: what was decided about it, or why it declined the run."""
    if member.barred is not None:
        return f"barred from the federation: {member.barred.reason}"
    if member.eviction is not None:
        return f"evicted: {member.eviction.reason}"
    if member.quarantine is not None:
        why = member.quarantine
        kind = "proposed" if why.kind == "proposal" else "quarantined"
        return f"{kind}, until round {why.until}: {why.reason}"
    if member.abstained:
        return "abstained: only left out of the last round, because no more clients may be barred"
    if member.accept is False:
        return f"declined: {member.reason}"
    return "" if member.slot is not None else "accepted"
