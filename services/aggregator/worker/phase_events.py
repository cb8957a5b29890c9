"""The phase machine's events; all but `LeaseTaken` answer a question in `phase_commands.py`."""

from dataclasses import dataclass

from rampart_fl.services.aggregator.state.redis_records import Event
from rampart_fl.shared.protocol.messages import RunState


@dataclass(frozen=True)
class LeaseTaken:
    """A worker has taken over the run; this is the first event of every worker."""


@dataclass(frozen=True)
class ClientsRead:
    """Answers `ReadClients`."""

    status: RunState
    deadline: float | None
    clients: int
    """Number of clients that have accepted the run and are not barred."""


@dataclass(frozen=True)
class StatusRead:
    """Answers `ReadStatus`."""

    status: RunState


@dataclass(frozen=True)
class CandidatesRead:
    """Answers `ReadCandidates`."""

    status: RunState
    candidates: tuple[str, ...]
    """Clients that may be selected, sorted by id."""
    all_quarantined: bool = False
    """Whether every member that is not evicted is in quarantine; False if all are evicted."""
    disk_full: bool = False
    """Whether the disk has too little space for the next round."""


@dataclass(frozen=True)
class StandingRead:
    """Answers `ReadStanding`."""

    status: RunState
    deadline: float | None
    barred: frozenset[str]
    """Evicted and quarantined clients."""


@dataclass(frozen=True)
class EventsRead:
    """Answers `ReadEvents` and `CatchUp`; the list of events is empty if none arrived in time."""

    events: tuple[Event, ...] = ()


@dataclass(frozen=True)
class RoundDecided:
    """Answers `DecideRound` when the worker has computed the outcome of the round."""


@dataclass(frozen=True)
class RoundRefused:
    """Answers `DecideRound` if the updates do not meet a precondition, such as `n > 2f`."""

    reason: str


@dataclass(frozen=True)
class EvaluationRead:
    """Answers `ReadEvaluation`."""

    deadline: float | None
    waiting: bool
    """Whether at least one online client still has to evaluate the final models."""


PhaseEvent = (
    LeaseTaken
    | ClientsRead
    | StatusRead
    | CandidatesRead
    | StandingRead
    | EventsRead
    | RoundDecided
    | RoundRefused
    | EvaluationRead
)
