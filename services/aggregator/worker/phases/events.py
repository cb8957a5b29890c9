"""The events of the phase machine.

Every event except `LeaseTaken` is the answer to a question in `commands`.
"""

from dataclasses import dataclass

from rampart_fl.services.aggregator.state.redis_records import Event
from rampart_fl.shared.protocol.messages import RunState


@dataclass(frozen=True)
class LeaseTaken:
    """A worker has taken over the run; this is the first event of every worker."""


@dataclass(frozen=True)
class ClientsRead:
    """The answer to `ReadClients`."""

    status: RunState
    deadline: float | None
    clients: int
    """Number of clients that have accepted the run and are not barred."""


@dataclass(frozen=True)
class StatusRead:
    """The answer to `ReadStatus`."""

    status: RunState


@dataclass(frozen=True)
class CandidatesRead:
    """The answer to `ReadCandidates`."""

    status: RunState
    candidates: tuple[str, ...]
    """Clients that may be selected, sorted by id."""
    awaited: frozenset[str] = frozenset()
    """Clients that the server may summon, because a detector awaits their next uploads."""
    all_quarantined: bool = False
    """Whether every member that is not evicted is in quarantine; False if all are evicted."""
    disk_full: bool = False
    """Whether the disk has too little space for the next round."""


@dataclass(frozen=True)
class StandingRead:
    """The answer to `ReadStanding`."""

    status: RunState
    deadline: float | None
    barred: frozenset[str]
    """Evicted and quarantined clients."""


@dataclass(frozen=True)
class AbsencesRead:
    """The answer to `ReadAbsences`."""

    absent: frozenset[str]
    """Those clients in `ReadAbsences` that are away, or have a revoked or expired token."""


@dataclass(frozen=True)
class EventsRead:
    """The answer to `ReadEvents` and `CatchUp`; `events` is empty if no event arrived in time."""

    events: tuple[Event, ...] = ()


@dataclass(frozen=True)
class RoundDecided:
    """The answer to `DecideRound` when the worker has computed the outcome of the round."""


@dataclass(frozen=True)
class RoundRefused:
    """The answer to `DecideRound` if the updates do not meet a precondition, such as `n > 2f`."""

    reason: str


@dataclass(frozen=True)
class EvaluationRead:
    """The answer to `ReadEvaluation`."""

    deadline: float | None
    waiting: bool
    """Whether at least one online client still has to evaluate the final models."""


PhaseEvent = (
    LeaseTaken
    | ClientsRead
    | StatusRead
    | CandidatesRead
    | StandingRead
    | AbsencesRead
    | EventsRead
    | RoundDecided
    | RoundRefused
    | EvaluationRead
)
