"""HTTP connections with limits that an ASGI application cannot set.

By default, uvicorn has these gaps:

- uvicorn does not limit the size of a request's head (request line and headers), the time until the
  head is complete, or the size of the trailers (headers after a chunked body);
- uvicorn queues any number of pipelined requests, and continues to read while requests wait in the
  queue;
- uvicorn responds in plain text to bytes that are not HTTP;
- after uvicorn has sent the response, it waits indefinitely for the rest of the request's body;
- uvicorn waits indefinitely for a client to read the response;
- uvicorn accepts connections until the process has no file descriptors left.

A `Connection` limits the size of a request's head and of its trailers. It also limits the time
until the head is complete. This time limit applies in two other cases, too: the rest of a request's
body is still missing after the response, or the client stops reading the response. A `Connection`
answers every refused request with an RFC 9457 problem. A `Connection` also limits the number of
pipelined requests in the queue, and reads nothing while requests wait in the queue. If too many
connections are open, a new connection is refused.
"""

import asyncio
import resource
from collections.abc import Sequence
from typing import Any, ClassVar

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from rampart_fl.services.aggregator.api.problems import problem
from rampart_fl.shared.errors import RampartError, Unavailable
from rampart_fl.shared.protocol.refusals import HeadTooLarge, Malformed, SlowHead, TooMany

HEAD = 32_768
"""Maximum number of bytes that may arrive in a row without a complete head or a piece of a body.
Such bytes are a request line and headers, trailers, or a chunk's extensions."""
PIPELINED = 16
"""Maximum length of a connection's queue: requests wait in it until earlier requests are
answered."""
FILES = 1 << 20
"""Assumed limit on open files if the system sets none."""


def open_files() -> int:
    """Raises this process's limit on open files to the system's maximum; returns the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = FILES if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most


class SmallEvent(asyncio.Event):
    """An event with a list of waiters; the deque of an `asyncio.Event` occupies 700 bytes more."""

    def __init__(self, on: bool = False) -> None:
        super().__init__()
        self._waiters = []  # type: ignore[assignment]  # a list has all methods that are called
        self._value = on


class PipelinedRequests(list[Any]):
    """A list of a connection's pipelined requests; a deque would occupy 700 bytes more."""

    __slots__ = ()

    def appendleft(self, item: Any) -> None:
        """Adds the newest request."""
        self.insert(0, item)


class ReadingFlow(FlowControl):
    """Pauses reading while pipelined requests wait, even if uvicorn resumes reading.

    uvicorn resumes reading after each response, and whenever the application receives a body. A
    pause is safe: if other requests wait, the body of the current request is already complete.

    Args:
        transport: the connection's transport.
        pipeline: the requests that wait.
    """

    def __init__(self, transport: asyncio.Transport, pipeline: Sequence[Any]) -> None:
        super().__init__(transport)
        self._pipeline = pipeline
        self._is_writable_event = SmallEvent(on=True)

    def resume_reading(self) -> None:
        """Resumes reading if no request waits."""
        if not self._pipeline:
            super().resume_reading()


class Connection(HttpToolsProtocol):
    """A connection with time limits for request heads, unread bodies and unread responses."""

    # If an object has at most 30 attributes outside of `__slots__`, CPython does not store the
    # names of the attributes for each object, but only once for the class. These `__slots__` keep a
    # connection within this limit, which saves 1.3 KiB per connection.
    __slots__ = ("_body_open", "_overhead", "_stalled", "_timer", "_unanswered")
    patience: ClassVar[float] = 30.0
    """Time limit in seconds for each of three waits: for a complete head; for the rest of a body
    after the response; and for a client that does not read the response."""
    most: ClassVar[int] = FILES
    """Maximum number of simultaneous connections."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._timer: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._overhead = 0
        self._body_open = False
        self._unanswered: list[RequestResponseCycle] = []
        # Most open connections only wait for events, so each must occupy little memory. Clients
        # rarely pipeline requests, so a short list replaces uvicorn's deque.
        self.pipeline = PipelinedRequests()  # type: ignore[assignment]  # it has all methods that are called

    @classmethod
    def with_limits(cls, patience: float, most: int) -> type["Connection"]:
        """Makes a subclass with the time limit `patience` and the connection limit `most`."""
        return type(cls.__name__, (cls,), {"patience": patience, "most": most})

    @property
    def _serving(self) -> bool:
        return bool(self._unanswered)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Starts the timer for the first head; refuses the connection if too many are open."""
        super().connection_made(transport)
        self.flow = ReadingFlow(transport, self.pipeline)
        if len(self.connections) > self.most:
            self._refuse(Unavailable(f"{self.most} connections are already open"))
        else:
            self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancels the timers, and marks every unanswered request as disconnected.

        Without this override, uvicorn marks only the connection's newest request as disconnected.
        """
        self._disarm()
        self._flowing()
        for cycle in self._unanswered:
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Called when the client stops reading the response; starts a timer for the pause."""
        super().pause_writing()
        self._stalled = self.loop.call_later(self.patience, self.transport.abort)

    def resume_writing(self) -> None:
        """Called when the client resumes reading the response; cancels the pause's timer."""
        self._flowing()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Parses received bytes; refuses a client that sends too many bytes outside of bodies.

        The method counts the bytes that have arrived since the last complete head, or since the
        last piece of a body. It refuses the client if it counts more than `HEAD` bytes.
        """
        self._overhead += len(data)
        if self._timer is None and not self._serving and not self._body_open:
            self._arm()
        super().data_received(data)
        if self._overhead > HEAD and not self.transport.is_closing():
            self._refuse(HeadTooLarge(f"more than {HEAD} bytes of headers or trailers"))

    def on_headers_complete(self) -> None:
        """Called when a head is complete; cancels its timer, and starts or queues the request.

        Raises:
            TooMany: the queue is full. The parser's buffer may hold more heads, so the error stops
                the parser.
        """
        if len(self.pipeline) >= PIPELINED:
            refusal = TooMany(f"{PIPELINED} requests already wait on this connection", 1)
            self._refuse(refusal)
            raise refusal
        self._overhead = 0
        self._disarm()
        before = self.cycle
        super().on_headers_complete()  # Raises an error if the request's target is not valid.
        self._body_open = True
        if self.cycle is not before:
            # Replace uvicorn's event with a smaller event. No task waits for uvicorn's event yet.
            self.cycle.message_event = SmallEvent()
        self._unanswered.append(self.cycle)

    def on_body(self, body: bytes) -> None:
        """Called for each piece of a body."""
        self._overhead = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Called when a request's body is complete."""
        self._overhead, self._body_open = 0, False
        if not self._serving:
            self._disarm()
            # The rest of the body came after the response. Its arrival stopped uvicorn's timer, so
            # start this timer again.
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Called when a response is complete; starts a timer for the rest of the request's body."""
        self._unanswered.pop(0)
        super().on_response_complete()
        if not self.transport.is_closing():
            self.flow.resume_reading()  # The queue of requests may be empty now.
        if self._body_open and not self._serving and not self.transport.is_closing():
            self._arm()

    def send_400_response(self, msg: str) -> None:
        """Closes the connection with a problem response, because the bytes are not HTTP."""
        self._refuse(Malformed("the request is not valid HTTP"))

    def _unsupported_upgrade_warning(self) -> None:
        """Logs no warning; an upgrade request is answered like any other request."""

    def _arm(self) -> None:
        self._disarm()
        self._timer = self.loop.call_later(self.patience, self._expired)

    def _flowing(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expired(self) -> None:
        self._timer = None
        if self._overhead and not self._serving and not self._body_open:
            self._refuse(SlowHead(f"the headers did not arrive within {self.patience:g} seconds"))
        else:
            self.transport.close()

    def _refuse(self, refusal: RampartError) -> None:
        self._disarm()
        if self.transport.is_closing():
            return
        answered = self._unanswered[0].response_started if self._serving else self._body_open
        if not answered:
            answer = problem(refusal, "")
            lines = [name + b": " + value + b"\r\n" for name, value in answer.raw_headers]
            head = [STATUS_LINE[refusal.status], *lines, b"connection: close\r\n\r\n"]
            self.transport.write(b"".join([*head, bytes(answer.body)]))
        self.transport.close()
