"""Facts about clients that are not part of their records, such as their last requests."""

from math import inf
from typing import NamedTuple

from rampart_fl.shared.protocol.clients import Bar


class LastRequest(NamedTuple):
    """A client's last request."""

    age: float
    """Seconds since the request."""
    software: str
    """The software that the request named."""
    away: bool
    """Whether the request said that the client does not train now."""


class ClientFacts(NamedTuple):
    """Facts about a client that are not part of its record."""

    seen: float | None
    """Unix time of the client's last request, by Redis' clock."""
    silent: float | None
    """Seconds since the client's last request; None if the client has not sent any request.
    Infinite if the client said in its last request that it is away."""
    software: str
    """The software that the client named in its last request."""
    barred: Bar | None
    """Why the client is barred from the federation; None if it is not barred."""

    def online(self, offline_after: float) -> bool:
        """Whether the client sent a request within the last `offline_after` seconds."""
        return self.silent is not None and self.silent < offline_after


def silence(stored: float, now: float) -> float:
    """Seconds since the stored time of a client's last request; infinite if the client is away."""
    return inf if stored < 0 else now - stored
