"""The event hub reads events once per process, and wakes waiting requests.

The hub reads the events of the federation, and those of the current run.

A waiting request holds only a future, and no connection to Redis. An event wakes only the waiting
requests that it concerns. An event about one client wakes that client's requests. The start of a
round wakes the requests of the clients that got a ticket. The start or the end of a run wakes all
waiting requests.
"""

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence

from rampart_fl.services.aggregator.state.client_facts import LastRequest
from rampart_fl.services.aggregator.state.event_log import BATCH, EventLog, read_streams
from rampart_fl.services.aggregator.state.redis_records import Event, EventType
from rampart_fl.services.aggregator.state.stores import Stores
from rampart_fl.shared.errors import Unavailable
from rampart_fl.shared.runtime.memory import release_unused_memory

log = logging.getLogger(__name__)

PAUSE = 0.005
"""Seconds that the hub waits between two reads of the streams, so that one read gets all events of
a burst."""
FOR_ONE: frozenset[EventType] = frozenset(
    {
        *("ticket", "evicted", "confirmed", "reinstated", "dismissed", "released", "customized"),
        *("joined", "accepted", "declined", "labelled", "barred", "readmitted", "checked"),
    }
)
FOR_ALL: frozenset[EventType] = frozenset({"started", "slots_assigned", "ended", "deleted"})
BEGINNING = "0-0"
"""The position before the first event of a stream."""
ANYONE = ""
"""The topic of requests that wait for general events, not for events about one client or one task
of a worker. The topic is the empty string, which is not a client's id."""


class Listener:
    """A waiting request, as a context manager; this class needs less memory than a generator.

    Args:
        hub: the hub that wakes the request.
        topic: the topic of the awaited events, as in `EventHub.listen`.
    """

    __slots__ = ("_hub", "_topic", "_waiting", "woken")

    def __init__(self, hub: "EventHub", topic: str) -> None:
        self._hub = hub
        self._topic = topic
        self._waiting: asyncio.Future[None] | None = None
        self.woken = False

    def __enter__(self) -> Callable[[float], Awaitable[bool]]:
        self._hub.waiters[self._topic].append(self)
        return self.wait

    def __exit__(self, *_: object) -> None:
        waiters = self._hub.waiters[self._topic]
        waiters.remove(self)
        if not waiters:
            del self._hub.waiters[self._topic]

    def wake(self) -> None:
        """Records that an event came, and ends the wait of the request."""
        self.woken = True
        self._end()

    async def wait(self, seconds: float) -> bool:
        """Waits for an event for up to `seconds`; returns whether one came since the previous wait.

        If the hub is closing, `wait` returns False at once.
        """
        if self._hub.closing:
            return False
        if not self.woken:
            loop = asyncio.get_running_loop()
            self._waiting = loop.create_future()
            timer = loop.call_later(seconds, self._end)
            try:
                await self._waiting
            finally:
                timer.cancel()
        woken, self.woken = self.woken, False
        return woken and not self._hub.closing

    def _end(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


class EventHub:
    """Wakes waiting requests, and records when each client last sent a request.

    Args:
        stores: the stores of the federation.
        flush_every: seconds between two writes of the times at which clients last sent requests.
    """

    def __init__(self, stores: Stores, flush_every: float = 2.0) -> None:
        self._stores = stores
        self._flush_every = flush_every
        self.waiters: dict[str, list[Listener]] = defaultdict(list)
        """The waiting requests of each topic."""
        self._seen: dict[str, tuple[float, str, bool]] = {}
        self._away: set[str] = set()
        """The clients that are away, according to the newest of their requests that this process
        has stored."""
        self._run: str | None = None
        """The current run, whose events the hub reads; None if there is no current run."""
        self.closing = False
        self.listening = False
        """Whether the hub reads events as they happen; False while Redis cannot be reached."""
        self.token_changes = 0
        """Counter that grows whenever a token may have changed."""
        self.deletions = 0
        """Counter that grows whenever a run may have been deleted."""
        self.takeovers = 0
        """Counter that grows whenever a worker may have taken over the federation."""

    @property
    def waiting(self) -> int:
        """How many requests are waiting."""
        return sum(len(waiters) for waiters in self.waiters.values())

    def count(self, topic: str) -> int:
        """How many requests are waiting for events about a topic."""
        return len(self.waiters.get(topic, ()))

    def saw(self, client: str, software: str = "", away: bool = False) -> None:
        """Records the time of a client's request, and what the request says.

        Args:
            client: the client's id.
            software: the software that the request names.
            away: whether the client says that it does not train now.
        """
        self._seen[client] = time.monotonic(), software, away

    def listen(self, topic: str) -> Listener:
        """Listens for events about a topic.

        A topic is `ANYONE`, the id of a client, or the id of a task that the API gave a worker.

        The `with` statement gives a function that waits for the next event, for up to a given
        number of seconds. The function returns whether an event came. No event is missed: if an
        event came since the `with` block began, but before the call, the function returns at once.
        """
        return Listener(self, topic)

    def close(self) -> None:
        """Wakes every waiting request, so that the server can stop."""
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
                events = await read_streams(self._stores.redis, positions, 5.0)
                if await self._missed(positions, events):
                    log.warning("events were deleted before they were read")
                    positions = self._lose_track()
                    continue
                for stream, event in events:
                    if stream in positions:
                        positions[stream] = event.position
                    if event.type == "started":
                        # The streams of earlier runs get no new events, so the hub reads only the
                        # federation's stream and the new run's stream.
                        positions = {self._stores.events.key: event.position}
                        self._run = event.run
                        positions[self._stores.of_run(self._run).events.key] = BEGINNING
                    await self._dispatch(event)
                if any(event.type == "taken_over" for _, event in events):
                    # The worker that took over may have converted the state and renamed keys, so
                    # cached state and positions are no longer valid.
                    positions = self._lose_track()
                await asyncio.sleep(PAUSE)
            except Unavailable as error:
                log.warning("cannot read events: %s", error)
                positions = self._lose_track()
                await asyncio.sleep(0.5)
                self._wake_all()

    async def _missed(
        self, positions: Mapping[str, str], events: Sequence[tuple[str, Event]]
    ) -> bool:
        """Whether events were deleted before this process read them.

        For example, events can be deleted unread while the process is suspended. A log always keeps
        at least its `BATCH` newest events. If it deleted events that this process has not read, the
        next read therefore returns a full batch.
        """
        redis, sizes = self._stores.redis, Counter(stream for stream, _ in events)
        full = [one for one, size in sizes.items() if size >= BATCH and positions[one] != BEGINNING]
        return any([await EventLog(redis, one).may_lack(positions[one]) for one in full])

    def _lose_track(self) -> dict[str, str]:
        """Invalidates cached state; returns an empty dict, which makes `_read` call `_begin`."""
        self.listening = False
        self.token_changes += 1
        self.deletions += 1
        self.takeovers += 1
        return {}

    async def _begin(self) -> dict[str, str]:
        """Maps each stream that the hub reads to the position after which reading starts.

        Raises:
            ConfigurationError: this version cannot use the schema of the stored state, so the
                process has to exit.
        """
        await self._stores.runs.schema()
        events = self._stores.events
        positions = {events.key: await events.last_position()}
        self._run = await self._stores.runs.current()
        if self._run is not None:
            own = self._stores.of_run(self._run).events
            positions[own.key] = await own.last_position()
        return positions

    async def store_return(self, client: str) -> None:
        """Stores all new requests at once if this client was away before its newest request."""
        if client in self._away:
            await self._store_requests()

    async def _store_requests(self) -> None:
        """Stores when clients last sent requests, and what these requests said."""
        seen, self._seen = self._seen, {}
        now = time.monotonic()
        requests = {
            client: LastRequest(now - at, software, away)
            for client, (at, software, away) in seen.items()
        }
        try:
            await self._stores.clients.saw(requests)
        except Unavailable:
            self._seen = {**seen, **self._seen}
            return
        self._away -= requests.keys()
        self._away |= {client for client, one in requests.items() if one.away}

    async def _flush(self) -> None:
        while True:
            await asyncio.sleep(self._flush_every)
            await self._store_requests()

    async def _dispatch(self, event: Event) -> None:
        if event.type in {"rotated", "revoked"}:
            self.token_changes += 1
            self._wake(event.client)
        elif event.type == "opened" and self._run is not None:
            for client in await self._stores.of_run(self._run).tickets.holders():
                self._wake(client)
        elif event.type in FOR_ALL:
            self.deletions += event.type == "deleted"
            self._wake_all()
            if event.type == "ended":
                asyncio.get_running_loop().run_in_executor(None, release_unused_memory)
        elif event.type in FOR_ONE:
            self._wake(event.addressee or ANYONE)

    def _wake_all(self) -> None:
        for topic in list(self.waiters):
            self._wake(topic)

    def _wake(self, topic: str) -> None:
        for listener in self.waiters.get(topic, ()):
            listener.wake()
