"""The search for a client's next run: the client answers offers until it takes part in a run."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from rampart_fl.shared.agent.client import AggregatorClient, RequestRefused
from rampart_fl.shared.protocol.messages import Ticket

log = logging.getLogger(__name__)
OfferHandler = Callable[[str, dict[str, Any]], Awaitable[tuple[bool, str, int | None]]]
"""A function that answers the offer of a run. The function gets the run's id, and the part of the
experiment that clients know. The function returns three values: whether the client accepts the run,
the reason if the client declines, and the slot that the client asks for."""


async def next_run(
    connection: AggregatorClient, answer: OfferHandler, client: str, last: Ticket | None = None
) -> Ticket:
    """Answers offers of runs until the client takes part in one.

    Args:
        connection: the client's connection.
        answer: decides whether the client accepts an offer.
        client: the client's id.
        last: the ticket with which the client left its previous run, if any. If that run was
            deleted, the ticket may already offer another run.
    Returns:
        The first ticket of the run. If the client is barred from the federation, the result is a
        ticket of the kind `evicted` that names no run.
    """
    ticket = last
    known: str | None = None
    while True:
        if ticket is not None:
            known = ticket.etag
            if ticket.kind == "offer":
                await _answer(connection, answer, client, ticket)
            elif ticket.kind == "evicted" and not ticket.run:
                log.info("barred", extra={"client": client, "reason": ticket.reason})
                return ticket
            elif ticket.run and ticket.kind not in ("evicted", "done"):
                return ticket
        ticket = await connection.ticket(known)


async def sit_out(connection: AggregatorClient, ticket: Ticket) -> Ticket:
    """Waits without training until the run ends or the client is evicted; returns the last ticket.

    The requests say that the client is away. The client thus counts as offline, so that rounds do
    not wait for it.

    Args:
        connection: the client's connection.
        ticket: the client's current ticket, which names the run.
    """
    run = ticket.run
    while ticket.run == run and ticket.kind not in ("evicted", "done"):
        ticket = await connection.ticket(ticket.etag, run=run, away=True) or ticket
    return ticket


async def _answer(
    connection: AggregatorClient, answer: OfferHandler, client: str, offer: Ticket
) -> None:
    """Answers an offer. If the aggregator refuses the answer, the offer has expired."""
    where = {"client": client, "run": offer.run}
    try:
        accept, reason, slot = await answer(offer.run, await connection.experiment(offer.run))
        await connection.answer(offer.run, accept, reason, slot)
    except RequestRefused as refusal:
        log.warning("the aggregator refused a request: %s", refusal, extra=where)
    else:
        log.info("%s", "accepted" if accept else "declined", extra={**where, "reason": reason})
