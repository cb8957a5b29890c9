"""Converts an agent's files from an earlier version, in which a federation had a single run."""

import hashlib
import json
from pathlib import Path

from rampart_fl.shared.protocol.messages import Ticket
from rampart_fl.shared.runtime import durable

FIRST = "1"
"""The number of the only run of an older federation; the aggregator's schema migration sets it."""


def adopt_former_state(folder: Path, own: Path, first: Ticket) -> None:
    """Moves the earlier version's files (uploads and personal states) to the folder of their run.

    The state of the earlier version belongs to the federation's first run, so the function does
    nothing in later runs.

    Args:
        folder: the client's folder.
        own: the client's folder for the run.
        first: the first ticket that the client gets in the run.
    """
    if first.run.rpartition("-")[2] != FIRST:
        return
    for path in sorted(folder.glob("*.kept")):
        line, _, rest = path.read_bytes().partition(b"\n")
        head = json.loads(line)
        if head["ticket"] == former_etag(first):
            head["ticket"] = first.etag  # Replace the earlier format of the ETag.
        own.mkdir(parents=True, exist_ok=True)
        durable.replace(own / path.name, (json.dumps(head).encode() + b"\n", rest))
        path.unlink()


def former_etag(ticket: Ticket) -> str:
    """The ETag that a ticket had in the earlier version, in which tickets did not name a run."""
    parts = [ticket.round, ticket.kind, sorted(ticket.models.items()), ticket.experiment]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
