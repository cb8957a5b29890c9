"""The event hub: one reader of events per process, which wakes waiting requests.

The hub reads the events of the federation, and those of the run that is executed now.

A waiting request needs only an `asyncio.Event`, not a connection to Redis. An event that concerns
one client wakes only that client's requests.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from rampart_fl.services.aggregator.state.event_log import read_streams
from rampart_fl.services.aggregator.state.redis_records import Event
from rampart_fl.services.aggregator.state.stores import Stores
from rampart_fl.shared.errors import Unavailable
from rampart_fl.shared.runtime.memory import release_free_memory

log = logging.getLogger(__name__)

PAUSE = 0.005
"""Pause in seconds between two reads of the stream, so that one read gets all events of a burst."""
FOR_ONE = frozenset(
    {
        *("ticket", "evicted", "confirmed", "reinstated", "dismissed", "released", "customized"),
        *("joined", "accepted", "declined", "labelled", "barred", "readmitted", "checked"),
    }
)
FOR_ALL = frozenset({"opened", "started", "seated", "ended", "deleted"})
ANYONE = ""


class EventHub:
    """Wakes waiting requests, and records when each client last sent a request.

    Args:
        stores: the federation's state: the events, and the times of clients' last requests.
        flush_every: seconds between two writes of these times to the store.
    """

    def __init__(self, stores: Stores, flush_every: float = 2.0) -> None:
        self._stores = stores
        self._flush_every = flush_every
        self._waiters: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._seen: dict[str, tuple[float, str]] = {}
        self.closing = False
        self.listening = False
        """Whether the hub reads events as they happen; False while Redis cannot be reached."""
        self.token_changes = 0
        """Counter that grows whenever a token may have changed."""
        self.deletions = 0
        """Counter that grows whenever a run may have been deleted."""

    @property
    def waiting(self) -> int:
        """How many requests are waiting."""
        return sum(len(waiters) for waiters in self._waiters.values())

    def count(self, topic: str) -> int:
        """How many requests are waiting for events about a topic."""
        return len(self._waiters.get(topic, ()))

    def saw(self, client: str, software: str = "") -> None:
        """Records that a client has sent a request just now, and the software that it named."""
        self._seen[client] = time.time(), software

    @contextmanager
    def listen(self, topic: str) -> Iterator[Callable[[float], Awaitable[bool]]]:
        """Listens for events about a topic, which is the id of a client or of a request.

        Yields a function that waits up to a number of seconds for the next event, and returns
        whether one came. Events that happen after the context is entered and before the wait starts
        are not missed.
        """
        loop = asyncio.get_running_loop()
        heard = asyncio.Event()
        self._waiters[topic].add(heard)

        async def wait(seconds: float) -> bool:
            if self.closing:
                return False
            timer = loop.call_later(seconds, heard.set)
            started = loop.time()
            await heard.wait()
            timer.cancel()
            heard.clear()
            return not self.closing and loop.time() - started < seconds

        try:
            yield wait
        finally:
            self._waiters[topic].discard(heard)
            if not self._waiters[topic]:
                del self._waiters[topic]

    def close(self) -> None:
        """Ends the wait of every request, so that the server can stop."""
        self.closing = True
        self._wake_all()

    async def run(self) -> None:
        """Reads events for as long as the process lives."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._read())
            tasks.create_task(self._flush())

    async def _read(self) -> None:
        positions: dict[str, str] = {}
        while True:
            try:
                if not positions:
                    positions = await self._begin()
                    self._wake_all()  # Events may have been missed, so every request checks again.
                self.listening = True
                for stream, event in await read_streams(self._stores.redis, positions, 5.0):
                    if stream in positions:
                        positions[stream] = event.position
                    if event.type == "started":
                        # The streams of former runs get no new events.
                        positions = {self._stores.events.key: event.position}
                        positions[self._stores.of_run(event.fields["run"]).events.key] = "0-0"
                    self._dispatch(event)
                await asyncio.sleep(PAUSE)
            except Unavailable as error:
                log.warning("cannot read events: %s", error)
                self.listening = False
                self.token_changes += 1
                self.deletions += 1
                positions = {}
                await asyncio.sleep(0.5)
                self._wake_all()

    async def _begin(self) -> dict[str, str]:
        """The streams to read, each with the position after which reading starts."""
        events = self._stores.events
        positions = {events.key: await events.last_position()}
        run = await self._stores.runs.current()
        if run is not None:
            own = self._stores.of_run(run).events
            positions[own.key] = await own.last_position()
        return positions

    async def _flush(self) -> None:
        while True:
            await asyncio.sleep(self._flush_every)
            seen, self._seen = self._seen, {}
            try:
                await self._stores.clients.saw(seen)
            except Unavailable:
                self._seen = {**seen, **self._seen}

    def _dispatch(self, event: Event) -> None:
        if event.type in {"rotated", "revoked"}:
            self.token_changes += 1
        elif event.type in FOR_ALL:
            self.deletions += event.type == "deleted"
            self._wake_all()
            if event.type == "ended":
                asyncio.get_running_loop().run_in_executor(None, release_free_memory)
        elif event.type in FOR_ONE:
            self._wake(event.fields.get("client") or event.fields.get("request", ANYONE))

    def _wake_all(self) -> None:
        for topic in list(self._waiters):
            self._wake(topic)

    def _wake(self, topic: str) -> None:
        for heard in self._waiters.get(topic, ()):
            heard.set()
