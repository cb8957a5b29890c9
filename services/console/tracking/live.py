"""Copies a run of a federation to a tracker during the run."""

from collections.abc import Iterator
from itertools import tee
from pathlib import Path

from rampart_fl.services.console.connection.event_stream import follow_events
from rampart_fl.services.console.reports.export import export
from rampart_fl.services.console.reports.run_reader import RunReader
from rampart_fl.services.console.stored_run import (
    FinishedRun,
    curve_point,
    honest_clients,
    read_run,
)
from rampart_fl.services.console.tracking.track import TrackedRound, copy
from rampart_fl.services.console.tracking.tracker import Tracker
from rampart_fl.shared.figures.client_metrics import newer
from rampart_fl.shared.protocol.messages import RoundRecord
from rampart_fl.shared.protocol.runs import OVER

ACTS = frozenset({"evicted", "confirmed", "dismissed", "reinstated", "released"})
"""Events that bar or readmit a client. An event is copied with the next round. If a verdict in this
round's record bars the same client, the verdict replaces the event."""
CLOSES = frozenset({"published", "failed"})
"""Events that end a round; after these events, the record of the round can be read."""
PATIENCE = 60.0
"""Maximum time in seconds to wait for an aggregator that restarts."""


def track_live(reader: RunReader, tracker: Tracker) -> FinishedRun:
    """Copies the rounds of a started run until the run ends, and then the final results.

    Args:
        reader: reads the run.
        tracker: an unused tracker.
    """
    run, began = reader.run, reader.info.started_at
    assert began is not None

    def finished(folder: Path) -> FinishedRun:
        export(RunReader.of(run), folder / reader.info.run)
        return read_run(folder / reader.info.run)

    return copy(reader.experiment, rounds(reader), finished, tracker, began)


def rounds(reader: RunReader) -> Iterator[TrackedRound]:
    """Yields the rounds of a run, each as soon as it has ended."""
    run, acts, slots = reader.run, dict[str, str](), dict[str, int]()

    def ended() -> Iterator[RoundRecord]:
        since, over = 0, False
        for event in follow_events(run, PATIENCE):
            # A restart of the aggregator may lose the event that ends a round. In this case, the
            # round's record is read later: at the next event that ends a round or the run.
            kind = event.get("type", "tick")
            if kind in ACTS:
                acts[event["client"]] = f"{kind}: {event.get('reason', '')}"
            elif kind in CLOSES:
                yield from run.records(since, int(event["round"]), mixing=False)
                since = int(event["round"]) + 1
            elif kind == "ended" or (kind == "tick" and over):
                yield from run.records(since, run.status().round, mixing=False)
                return
            elif kind == "tick":
                # All events of an ended run arrive before the next tick, so stop at that tick.
                over = run.info().state in OVER

    for_records, for_metrics = tee(ended())
    for record, newest in zip(for_records, newer(one.metrics for one in for_metrics), strict=True):
        if not slots.keys() >= newest.keys():
            slots |= RunReader(run, reader.info).slots
        curves = curve_point(newest, honest_clients(reader.experiment, slots))
        yield TrackedRound(record, curves, dict(acts))
        acts.clear()
