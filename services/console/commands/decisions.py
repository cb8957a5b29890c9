"""Commands that decide who takes part: evictions, proposals, and the mode of the detectors."""

import sys
from typing import Annotated

import typer

from rampart_fl.services.console.commands.connection import (
    Ca,
    Json,
    Reason,
    Run,
    Token,
    Url,
    Where,
    connect,
    emit,
    say,
)
from rampart_fl.services.console.commands.unused import refuse_unused
from rampart_fl.shared.experiment.eviction import Mode
from rampart_fl.shared.protocol.reasons import NO_REASON
from rampart_fl.shared.protocol.runs import OVER

Everywhere = Annotated[
    bool, typer.Option("--everywhere", help="Apply to the whole federation, not only to one run.")
]


def evict(
    context: typer.Context,
    client: str,
    reason: Reason = NO_REASON,
    everywhere: Everywhere = False,
    run: Run = None,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Evicts a client from a run, or bars it from the whole federation."""
    if everywhere:
        refuse_unused(context, "--everywhere applies to all runs", "run")
        _decide_everywhere("evict", client, reason, (url, token, ca), as_json)
    else:
        _decide("evict", client, run, reason, (url, token, ca), as_json)


def reinstate(
    context: typer.Context,
    client: str,
    reason: Reason = NO_REASON,
    everywhere: Everywhere = False,
    run: Run = None,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Reverses an eviction or a quarantine.

    After the end of a run, an evicted client can be reinstated so that it gets the final models.
    """
    if everywhere:
        refuse_unused(context, "--everywhere applies to all runs", "run")
        _decide_everywhere("reinstate", client, reason, (url, token, ca), as_json)
    else:
        _decide("reinstate", client, run, reason, (url, token, ca), as_json)


def proposals(
    run: Run = None, url: Url = None, token: Token = None, ca: Ca = None, as_json: Json = False
) -> None:
    """Lists the evictions that wait for `confirm` or `dismiss`, with their evidence."""
    pending = connect(url, token, ca).run(run).proposals()
    if as_json:
        emit([one.model_dump(mode="json") for one in pending])
        return
    for one in pending:
        since = f"proposed in round {one.round}, expires in round {one.until}"
        sys.stdout.write(f"{one.client_id} {since}: {one.detector}: {one.reason}\n")
    if not pending:
        sys.stdout.write("no proposals\n")


def confirm(
    client: str,
    reason: Reason = NO_REASON,
    run: Run = None,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Confirms a proposal: evicts the client."""
    _decide("confirm", client, run, reason, (url, token, ca), as_json)


def dismiss(
    client: str,
    reason: Reason = NO_REASON,
    run: Run = None,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Dismisses a proposal: readmits the client and discards the evidence."""
    _decide("dismiss", client, run, reason, (url, token, ca), as_json)


def mode(
    mode: Annotated[Mode, typer.Argument(help="The most severe decision that the run may take.")],
    reason: Reason = NO_REASON,
    run: Run = None,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Sets the most severe decision that a run may take about a client.

    The mode applies to the next round that closes, and to all later rounds.
    """
    status = connect(url, token, ca).run(run).switch(mode, reason)
    text = f"{status.run} decides in mode {status.mode} from the next round that closes"
    say(as_json, status.model_dump(mode="json"), text)


def _decide(
    verb: str, client: str, run: str | None, reason: str, where: Where, as_json: bool
) -> None:
    operator = connect(*where)
    chosen = operator.run(run)
    info = chosen.decide(client, verb, reason)
    result, now = info.model_dump(mode="json"), "is evicted" if info.evicted else "may take part"
    if info.quarantine is not None:
        now = f"is quarantined until round {info.quarantine.until}"
    if verb == "reinstate":
        if info.slot is not None and chosen.info().state in OVER:
            now = f"may download the final models of run {chosen.id}, which has ended"
        barred = operator.client(client).barred
        result["barred"] = None if barred is None else barred.model_dump(mode="json")
        if barred is not None:
            now = (
                f"is no longer evicted from run {chosen.id}, but is still barred from the "
                f"federation ({barred.reason}); --everywhere readmits it"
            )
    say(as_json, result, f"{client} {now}")


def _decide_everywhere(verb: str, client: str, reason: str, where: Where, as_json: bool) -> None:
    info = connect(*where).decide_everywhere(client, verb, reason)
    now = "may take part in runs" if info.barred is None else "is barred from the federation"
    say(as_json, info.model_dump(mode="json"), f"{client} {now}")
