"""The event log: everything that happens, in order; the worker and operators read it."""

from dataclasses import dataclass

from rampart_fl.services.aggregator.state.keys import RunKeys
from rampart_fl.services.aggregator.state.redis_access import RedisAccess
from rampart_fl.services.aggregator.state.redis_records import Event


@dataclass(frozen=True)
class EventLog:
    """Reads the stream of events, which the stores' scripts write.

    Args:
        redis: the connection to Redis.
        keys: the keys of the run.
    """

    redis: RedisAccess
    keys: RunKeys

    async def read(self, after: str, block: float, count: int = 1000) -> list[Event]:
        """The events after a position; waits up to `block` seconds for the first one."""
        raw = await self.redis.ask(
            "xread", {self.keys.events: after}, count=count, block=max(1, int(block * 1000))
        )
        entries = raw[0][1] if isinstance(raw, list) and raw else []
        if isinstance(raw, dict) and raw:
            entries = next(iter(raw.values()))
            entries = entries[0] if entries and isinstance(entries[0], list) else entries
        return [Event(position, fields["type"], fields) for position, fields in entries]

    async def last_position(self) -> str:
        """The position of the newest event; "0-0" if there is none."""
        raw = await self.redis.ask("xrevrange", self.keys.events, count=1)
        return raw[0][0] if raw else "0-0"

    async def trim(self, kept: int = 1000) -> None:
        """Drops old events, and keeps about the last `kept`.

        Publishing a round also drops old events, so this method is only for the time after the last
        round.
        """
        await self.redis.ask("xtrim", self.keys.events, maxlen=kept)
