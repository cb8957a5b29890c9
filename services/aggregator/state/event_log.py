"""The event logs: one stream of events for the federation, and one for each run."""

from collections.abc import Mapping
from dataclasses import dataclass

from rampart_fl.services.aggregator.state.redis_access import RedisAccess
from rampart_fl.services.aggregator.state.redis_records import Event

EVENTS_KEPT = 86_400
"""Programs that follow a run can read its events for this many seconds after the run's end."""
BATCH = 1000
"""Maximum number of events that one read returns from each stream."""


async def read_streams(
    redis: RedisAccess, positions: Mapping[str, str], block: float, count: int = BATCH
) -> list[tuple[str, Event]]:
    """Reads events from several streams; returns pairs (key of the stream, event).

    `positions` maps the key of each stream to a position; only later events are returned. If
    there is no event yet, waits up to `block` seconds for the first one.
    """
    raw = await redis.ask("xread", dict(positions), count=count, block=max(1, int(block * 1000)))
    streams = dict(raw) if raw else {}  # RESP2 returns pairs; RESP3 returns a dictionary.
    events = []
    for stream, entries in streams.items():
        nested = entries and isinstance(entries[0], list)
        for position, fields in entries[0] if nested else entries:
            events.append((stream, Event(position, fields["type"], fields)))
    return events


@dataclass(frozen=True)
class EventLog:
    """Reads one stream of events; the stores' scripts write the events.

    Args:
        redis: the connection to Redis.
        key: the key of the stream.
    """

    redis: RedisAccess
    key: str

    async def read(self, after: str, block: float, count: int = BATCH) -> list[Event]:
        """The events after a position; waits up to `block` seconds for the first event."""
        events = await read_streams(self.redis, {self.key: after}, block, count)
        return [event for _, event in events]

    async def last_position(self) -> str:
        """The position of the newest event; "0-0" if there is none."""
        raw = await self.redis.ask("xrevrange", self.key, count=1)
        return raw[0][0] if raw else "0-0"

    async def may_lack(self, after: str) -> bool:
        """Whether events after a position may have been deleted before a reader saw them.

        Events may have been deleted if the oldest remaining event is later than the position.
        """
        raw = await self.redis.ask("xrange", self.key, count=1)
        return bool(raw) and _order(raw[0][0]) > _order(after)

    async def trim(self, kept: int = BATCH) -> None:
        """Deletes old events, and keeps about `kept` of the newest events.

        Call `trim` only for the federation's log. In the log of a run, the script that publishes a
        round also deletes old events.
        """
        await self.redis.ask("xtrim", self.key, maxlen=kept)


def _order(position: str) -> tuple[int, int]:
    """Converts a position to a sort key: (milliseconds, number within the millisecond)."""
    milliseconds, _, number = position.partition("-")
    return int(milliseconds), int(number)
