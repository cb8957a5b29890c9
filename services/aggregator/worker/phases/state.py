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
    summoned: frozenset[str] = frozenset()
    """The selected clients that were not drawn, but whose uploads a detector awaits."""
    silent: frozenset[str] = frozenset()
    """Clients that sent no update for the latest round for which they were selected. The worker
    summons none of these clients, because each of them could delay every round."""
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
    slots_assigned: bool = False
    """Whether slots were assigned before this worker took over the run in the phase `joining`."""
    stale: bool = True
    """Whether the run's status or the barred clients may have changed since they were read."""

    # `expected` and `counted` use intersections of sets, and not differences. The time for an
    # intersection is proportional to the size of the smaller set. The time for a set difference
    # would be proportional to the size of its first set, which may contain all clients.

    @property
    def expected(self) -> int:
        """Number of drawn clients whose updates can be included in the round.

        >>> PhaseState("collecting", 0, selected=frozenset("abc"), barred=frozenset("b")).expected
        2
        """
        out = self._out
        present = len(self.selected) - len(self.selected & out)
        return present - (len(self.summoned) - len(self.summoned & out))

    @property
    def counted(self) -> int:
        """Number of drawn clients whose updates have been received and are included in the round.

        >>> PhaseState("collecting", 0, arrived=frozenset("ab"), barred=frozenset("b")).counted
        1
        """
        extra = self.arrived & self.summoned
        included = len(self.arrived) - len(self.arrived & self.barred)
        return included - (len(extra) - len(extra & self.barred))

    @property
    def outstanding(self) -> int:
        """Number of summoned clients whose updates may still arrive.

        >>> PhaseState("collecting", 0, selected=frozenset("abc"), summoned=frozenset("bc"),
        ...            arrived=frozenset("b")).outstanding
        1
        """
        return len(self.summoned) - len(self.summoned & (self._out | self.arrived))

    @property
    def unanswered(self) -> frozenset[str]:
        """The next value of `silent`, once the open round has ended."""
        return (self.silent | self.selected) - self.arrived

    @property
    def _out(self) -> frozenset[str]:
        """Clients whose updates cannot be included in the round."""
        return self.barred | ((self.evicted | self.absent) - self.arrived)
