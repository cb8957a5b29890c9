"""Follows the events of a run, and reconnects after a lost connection."""

import time
from collections.abc import Iterator

from rampart_fl.services.console.connection.aggregator_connection import StreamLost
from rampart_fl.services.console.connection.operated_run import OperatedRun

PAUSE = 0.2
"""Seconds between the end of one connection and the next request. If an aggregator closes every
stream immediately, this pause limits the rate of the requests that it gets."""


def follow_events(run: OperatedRun, patience: float) -> Iterator[dict[str, str]]:
    """Yields the events of a run, beginning with the oldest that the aggregator still has.

    After a lost connection, continues with the first event that was not yet read. While there are
    no new events, yields an empty event at each tick that the aggregator sends.

    Args:
        run: the run. Until the stream opens, requests are retried for at most the patience of the
            run's connection.
        patience: seconds after which the function stops reconnecting, if no event and no tick
            arrives.
    Raises:
        OperatorRefused: the aggregator refuses the request.
        Unavailable: the stream cannot be opened in time, or `patience` seconds of reconnecting
            bring no event and no tick.
    """
    last, alive, give_up = "0-0", True, 0.0
    while True:
        try:
            for event in run.events(last, ticks=True):
                last, alive = event.get("id", last), True
                yield event
            lost = StreamLost("the aggregator closed the event stream")
        except StreamLost as error:
            lost = error
        if alive:
            alive, give_up = False, time.monotonic() + patience
        if time.monotonic() >= give_up:
            raise lost
        time.sleep(PAUSE)
