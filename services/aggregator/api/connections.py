"""HTTP connections with the bounds that an application cannot set: on heads, bodies and readers.

uvicorn reads a request's head without limit of size or time, answers what is not HTTP in plain
text, waits for the rest of a body whose request was answered already, and for ever for a client to
read its answer, and takes connections until no file can be opened. Here a head has a longest size
and a longest time, every refusal is a problem, such a rest has as long as a head, and so has each
part of an answer; beyond a number of connections each further one is refused.
"""

import asyncio
import resource
from collections import deque
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from rampart_fl.services.aggregator.api.problems import problem
from rampart_fl.shared.errors import RampartError, Unavailable
from rampart_fl.shared.protocol.refusals import HeadTooLarge, Malformed, SlowHead

HEAD = 32_768
"""Bytes of a request's line and headers."""
FILES = 1 << 20
"""Open files that suffice, where the system sets no limit."""


def open_files() -> int:
    """How many files this process may open, once it has asked for all that it may ask for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = FILES if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most


class Connection(HttpToolsProtocol):
    """One connection; a timer runs whenever bytes may come that no request is waiting for."""

    patience: ClassVar[float] = 30.0
    """Seconds for a head, for the rest of a body that nobody reads, and for an answer to go on."""
    most: ClassVar[int] = FILES
    """Connections at the same time."""
    _timer: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None
    _head = 0
    _body_open = False

    @classmethod
    def bounded(cls, patience: float, most: int) -> type["Connection"]:
        """This class with another time limit and another number of connections."""
        return type(cls.__name__, (cls,), {"patience": patience, "most": most})

    @property
    def _serving(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Starts the time limit of the first head."""
        super().connection_made(transport)
        self._unanswered = deque[RequestResponseCycle]()
        if len(self.connections) > self.most:
            self._refuse(Unavailable(f"{self.most} connections are open already"))
        else:
            self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the time limits, and lets every request know, where uvicorn tells the last alone."""
        self._disarm()
        self._flowing()
        for cycle in self._unanswered:
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not take what was written: it has a while to go on."""
        super().pause_writing()
        self._stalled = self.loop.call_later(self.patience, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads."""
        self._flowing()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Counts the bytes of a head before anything can be called with it."""
        if not self._serving and not self._body_open:
            self._head += len(data)
            if self._timer is None:
                self._arm()
        super().data_received(data)
        if self._head > HEAD and not self.transport.is_closing():
            self._refuse(HeadTooLarge(f"more than {HEAD} bytes of headers"))

    def on_headers_complete(self) -> None:
        """A head is complete: the application takes over."""
        self._head, self._body_open = 0, True
        self._disarm()
        super().on_headers_complete()
        self._unanswered.append(self.cycle)

    def on_message_complete(self) -> None:
        """A request is complete."""
        self._body_open = False
        if not self._serving:
            self._disarm()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """An answer is complete; the rest of its request's body may not take for ever."""
        self._unanswered.popleft()
        super().on_response_complete()
        if self._body_open and not self._serving and not self.transport.is_closing():
            self._arm()

    def send_400_response(self, msg: str) -> None:
        """Answers what is not HTTP."""
        self._refuse(Malformed("the request is not valid HTTP"))

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing: the request is answered as it would be otherwise; uvicorn logs two lines."""

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
        if self._head and not self._serving and not self._body_open:
            self._refuse(SlowHead(f"the headers did not come within {self.patience:g} seconds"))
        else:
            self.transport.close()

    def _refuse(self, refusal: RampartError) -> None:
        self._disarm()
        if self.transport.is_closing():
            return
        if not self._serving or not self.cycle.response_started:
            answer = problem(refusal, "")
            lines = [name + b": " + value + b"\r\n" for name, value in answer.raw_headers]
            head = [STATUS_LINE[refusal.status], *lines, b"connection: close\r\n\r\n"]
            self.transport.write(b"".join([*head, bytes(answer.body)]))
        self.transport.close()
