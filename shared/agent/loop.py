"""The loop of every participant in a run, honest or not: get a ticket, work, and upload."""

import asyncio
import contextlib
import errno
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Protocol, runtime_checkable

from rampart_fl.shared.agent.activity_log import ActivityLog
from rampart_fl.shared.agent.client import AggregatorClient, RequestRefused, TicketAndModel
from rampart_fl.shared.errors import RampartError, with_notes
from rampart_fl.shared.protocol.messages import Ticket

log = logging.getLogger(__name__)
HEARTBEAT = 20.0
"""Seconds between heartbeats while a participant works."""


class Participant(Protocol):
    """Processes the tickets of a client; each kind of client has a class with these methods."""

    async def work(self, ticket: Ticket, model: bytes) -> bytes:
        """The upload for a `train` or `probe` ticket; a repeated call returns the same bytes."""

    async def evaluate(self, ticket: Ticket, model: bytes) -> dict[str, float]:
        """Returns the client's measurements of the final model."""

    async def idle(self, ticket: Ticket) -> None:
        """Receives every ticket that `work` and `evaluate` do not handle."""


@runtime_checkable
class Receiver(Protocol):
    """A participant that also needs the additional models named in its tickets."""

    async def receive(self, ticket: Ticket, others: Mapping[str, bytes]) -> None:
        """Receives a ticket's additional models by name, before `work` or `evaluate` is called."""


DISK = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS}
"""Error numbers of a disk that is full or fails."""


def of_disk(error: Exception) -> bool:
    """Whether an error means that the disk is full or fails; a later attempt may succeed."""
    return isinstance(error, OSError) and error.errno in DISK


class ParticipantError(RampartError):
    """An error in a participant's own code or data.

    Args:
        cause: the error.
    """

    def __init__(self, cause: Exception) -> None:
        super().__init__(with_notes(cause))
        self.cause = cause


@contextlib.contextmanager
def own_errors() -> Iterator[None]:
    """Converts errors to `ParticipantError`, except refused requests and errors of the disk."""
    try:
        yield
    except RequestRefused:
        raise
    except Exception as error:
        if of_disk(error):
            raise
        raise ParticipantError(error) from error


async def participate(
    connection: AggregatorClient,
    participant: Participant,
    client: str,
    run: str,
    activity: ActivityLog | None = None,
) -> Ticket:
    """Takes part in a run until the run ends or the client is evicted; returns the last ticket.

    If the run is deleted, the returned ticket names a different run or no run. If `activity` is
    given, each upload is recorded in this log before the upload is sent.

    Raises:
        ParticipantError: the participant raised an error.
    """
    known: str | None = None
    cached: tuple[str, bytes] = ("", b"")
    pending: TicketAndModel | None = None
    while True:
        pending = pending or await connection.ticket_and_model(known, cached[0], run=run)
        if pending is None:
            continue
        (ticket, model), pending = pending, None
        known = ticket.etag
        where = {"run": run, "round": ticket.round, "client": client}
        if ticket.run != run:
            log.info(
                "client no longer takes part in the run", extra={**where, "reason": ticket.reason}
            )
            if ticket.kind == "evicted":  # The client was barred from the federation.
                with own_errors():
                    await participant.idle(ticket)
            return ticket
        try:
            if ticket.kind in ("train", "probe", "evaluate"):
                digest = ticket.models["model"]
                if cached[0] != digest:
                    cached = (digest, model or await connection.model(run, digest))
                await _hand_over(connection, participant, ticket)
                pending = await _answer(connection, participant, ticket, cached[1], activity)
                # After an upload, the client has a `wait` ticket until it has a new task. With the
                # ETag of this `wait` ticket, the next request waits until there is another ticket.
                known = ticket.model_copy(update={"kind": "wait", "models": {}}).etag
            else:
                with own_errors():
                    await participant.idle(ticket)
        except RequestRefused as refusal:
            # The aggregator refuses a late upload. It also refuses requests of a client that has
            # been evicted or has a newer ticket. The next ticket contains the client's next task.
            log.warning("the aggregator refused a request: %s", refusal, extra=where)
            known = None if refusal.reason in {"late", "no-ticket", "forbidden"} else known
            await asyncio.sleep(0.2)
        if ticket.kind in ("done", "evicted"):
            log.info("%s", ticket.kind, extra={**where, "reason": ticket.reason})
            return ticket


async def _hand_over(
    connection: AggregatorClient, participant: Participant, ticket: Ticket
) -> None:
    """Downloads a ticket's additional models (all but `model`) for a participant that uses them."""
    others = {name: digest for name, digest in ticket.models.items() if name != "model"}
    if others and isinstance(participant, Receiver):
        loaded = {
            digest: await connection.model(ticket.run, digest) for digest in {*others.values()}
        }
        with own_errors():
            await participant.receive(ticket, {name: loaded[d] for name, d in others.items()})


async def _answer(
    connection: AggregatorClient,
    participant: Participant,
    ticket: Ticket,
    model: bytes,
    activity: ActivityLog | None,
) -> TicketAndModel | None:
    """Processes a ticket; returns the next ticket if the response to the upload contains one."""
    async with _signs_of_life(connection):
        if ticket.kind == "evaluate":
            with own_errors():
                metrics = await participant.evaluate(ticket, model)
            await connection.evaluate(ticket.run, ticket.round, metrics)
            return None
        with own_errors():
            data = await participant.work(ticket, model)
    kind = "update" if ticket.kind == "train" else "probe"
    held = ticket.models["model"]
    if activity is not None:
        activity.record_upload(ticket.run, ticket.round, kind, data)
    _, following = await connection.upload_and_wait(ticket.run, ticket.round, kind, data, held)
    return following


@contextlib.asynccontextmanager
async def _signs_of_life(connection: AggregatorClient) -> AsyncIterator[None]:
    async def beat() -> None:
        while True:
            await asyncio.sleep(HEARTBEAT)
            try:
                await connection.heartbeat()
            except RequestRefused:
                pass  # The upload gets the same refusal, and handles it.
            except RampartError as error:
                log.warning("heartbeat failed: %s", error)

    beating = asyncio.create_task(beat())
    try:
        yield
    finally:
        beating.cancel()
        # `gather` absorbs the CancelledError of the heartbeat task. If the task that runs this code
        # is itself cancelled, `gather` still raises a CancelledError.
        await asyncio.gather(beating, return_exceptions=True)
