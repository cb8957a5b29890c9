"""Where a federation stands: the state of the phase machine."""

from dataclasses import dataclass
from typing import Literal

from rampart_fl.shared.protocol.messages import FederationState, Phase

MachinePhase = Phase | Literal["selecting"]
"""Redis holds each phase except selecting: until the round opens, it holds the phase before."""


@dataclass(frozen=True)
class State:
    """Where a federation stands.

    A worker that takes over has the first fields from Redis. The others follow from the events of
    the open round, which it reads again.
    """

    phase: MachinePhase
    round: int
    """The current round; while selecting, the round that opens next."""
    status: FederationState = "running"
    opened_at: float = 0.0
    deadline: float | None = None
    position: str = "0-0"
    """Position of the last event that a round accounts for."""
    heard: str = "0-0"
    """Position of the last event that was read; between rounds, it is ahead of `position`."""
    closing: str = "0-0"
    """Position of the last event of the last round that was closed."""
    selected: frozenset[str] = frozenset()
    """Clients of the round."""
    pulls: tuple[str, ...] = ()
    """Clients that asked for a ticket and get it when the next round opens (buffered policy)."""

    arrived: frozenset[str] = frozenset()
    """Clients whose update is in the round."""
    barred: frozenset[str] = frozenset()
    """Clients that are evicted or quarantined."""
    evicted: frozenset[str] = frozenset()
    """Clients that lost their ticket by eviction. The round does not wait for them, even if they
    are reinstated."""
    stale: bool = True
    """Whether the status or the barred clients may have changed since they were read."""

    # Both counts intersect with a small set: they do not go through all clients at every event.

    @property
    def expected(self) -> int:
        """How many clients may count in the round.

        >>> State("collecting", 0, selected=frozenset("abc"), barred=frozenset("b")).expected
        2
        """
        out = self.barred | (self.evicted - self.arrived)
        return len(self.selected) - len(self.selected & out)

    @property
    def counted(self) -> int:
        """How many updates count in the round.

        >>> State("collecting", 0, arrived=frozenset("ab"), barred=frozenset("b")).counted
        1
        """
        return len(self.arrived) - len(self.arrived & self.barred)
