"""The blobs that clients can still request, and the blobs that unhandled events refer to."""

from rampart_fl.services.aggregator.state.stores import RunStores


async def blobs_in_use(stores: RunStores, position: str) -> set[str]:
    """Digests of the blobs that are named by a run's tickets, or by its events after `position`."""
    # Read tickets before events. If an upload consumes a ticket between the two reads, the events
    # include the upload.
    tickets = await stores.tickets.outstanding()
    digests = {digest for ticket in tickets.values() for digest in ticket.models.values()}
    while waiting := await stores.events.read(position, 0):
        position = waiting[-1].position
        receipts = [event.receipt for event in waiting if event.has_receipt]
        digests |= {d for r in receipts for d in (r.digest, r.started) if d}
    return digests
