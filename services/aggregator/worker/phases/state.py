"""The state of the phase machine."""

from dataclasses import dataclass
from typing import Literal

from rampart_fl.shared.protocol.messages import Phase, RunState

MachinePhase = Phase | Literal["selecting"]
"""Redis does not store the phase `selecting`, but keeps the previous phase until a round opens."""


@dataclass(frozen=True)
class PhaseState:
    """The state of a run in the phase machine.

    A worker that takes over a run reads some fields of this state from Redis, and
    recomputes the other fields from the events of the open round.
    """

    phase: MachinePhase
    round: int
    """Number of the current round; in the phase `selecting`, number of the next round."""
    status: RunState = "running"
    opened_at: float = 0.0
    deadline: float | None = None
    position: str = "0-0"
    """Position of the last event that was handled for a round."""
    read_position: str = "0-0"
    """Position of the last event that was read; between rounds, it can be later than `position`."""
    closing: str = "0-0"
    """Position of the last event of the most recently closed round."""
    selected: frozenset[str] = frozenset()
    """Clients that take part in the open round."""
    examined: frozenset[str] = frozenset()
    """The selected clients whose updates the round judges, but does not aggregate."""
    pulls: tuple[str, ...] = ()
    """Clients that asked for a ticket, and get it when the next round opens (buffered policy)."""

    arrived: frozenset[str] = frozenset()
    """Clients whose updates for the open round have arrived."""
    barred: frozenset[str] = frozenset()
    """Clients that are evicted or quarantined."""
    evicted: frozenset[str] = frozenset()
    """Clients that lost their ticket because they were evicted. The round does not wait for evicted
    clients, even if they are reinstated."""
    absent: frozenset[str] = frozenset()
    """Clients that are away, or have a revoked or expired token. The round does not wait for these
    clients, but counts the updates that they have already sent."""
    absences_read_at: float = 0.0
    """Unix time at which the worker last learned which clients are absent."""
    caught_up_at: float = 0.0
    """Unix time at which the worker last asked for all events up to now. A round fails for lack of
    updates only after the worker has read all events from before the round's deadline."""
    slots_assigned: bool = False
    """Whether slots were assigned before this worker took over the run in the phase `joining`."""
    stale: bool = True
    """Whether the run's status or the barred clients may have changed since they were read."""

    # `expected` and `counted` use intersections of sets, and not differences. The time for an
    # intersection is proportional to the size of the smaller set. The time for a set difference
    # would be proportional to the size of its first set, which may contain all clients.

    @property
    def expected(self) -> int:
        """Number of clients whose updates can be aggregated in the round.

        >>> PhaseState("collecting", 0, selected=frozenset("abc"), barred=frozenset("b")).expected
        2
        """
        out = self._out
        present = len(self.selected) - len(self.selected & out)
        return present - (len(self.examined) - len(self.examined & out))

    @property
    def counted(self) -> int:
        """Number of received updates that are aggregated in the round.

        >>> PhaseState("collecting", 0, arrived=frozenset("ab"), barred=frozenset("b")).counted
        1
        """
        extra = self.arrived & self.examined
        included = len(self.arrived) - len(self.arrived & self.barred)
        return included - (len(extra) - len(extra & self.barred))

    @property
    def outstanding(self) -> int:
        """Number of examined clients whose updates may still arrive.

        >>> PhaseState("collecting", 0, selected=frozenset("abc"), examined=frozenset("bc"),
        ...            arrived=frozenset("b")).outstanding
        1
        """
        return len(self.examined) - len(self.examined & (self._out | self.arrived))

    @property
    def _out(self) -> frozenset[str]:
        """Clients whose updates cannot be included in the round."""
        return self.barred | ((self.evicted | self.absent) - self.arrived)
