"""The commands of the phase machine.

There are three kinds of commands: transitions of the run in Redis, work within a phase, and
questions. As long as the run has not ended, the last command of every step is a question. The
answer to this question is the machine's next event.
"""

from dataclasses import dataclass

from rampart_fl.services.aggregator.state.redis_records import Event

# -- transitions: each is one atomic script in Redis --------------------------------------------


@dataclass(frozen=True)
class AssignSlots:
    """Assign a slot to each client that accepted; these clients become the run's members."""


@dataclass(frozen=True)
class OpenRound:
    """Record that the round is open, and issue tickets to clients."""

    number: int
    opened_at: float
    deadline: float | None
    selected: tuple[str, ...]
    """The clients of the round, sorted by id."""
    examined: tuple[str, ...]
    """The selected clients whose updates the round judges, but does not aggregate."""
    tickets: tuple[str, ...]
    """Clients that get a ticket when the round opens."""
    barrier: bool
    """Whether the round waits for its clients. If the round waits, tickets are valid until the
    round's deadline."""


@dataclass(frozen=True)
class CloseRound:
    """Record that the collection of updates has ended."""

    number: int
    position: str
    """Position of the last event that belongs to the round."""


@dataclass(frozen=True)
class PublishRound:
    """Publish the round's outcome, which the worker computed after the question `DecideRound`."""


@dataclass(frozen=True)
class FailRound:
    """Record that the round failed; the models remain unchanged."""

    reason: str


@dataclass(frozen=True)
class OpenEvaluation:
    """Ask every member that is not evicted to evaluate the final models."""

    number: int
    opened_at: float
    deadline: float


@dataclass(frozen=True)
class Finish:
    """Record that the run has ended."""


# -- work within a phase -----------------------------------------------------------------------


@dataclass(frozen=True)
class PrepareRound:
    """Prepare this worker for the open round, which this or a previous worker opened."""

    selected: tuple[str, ...]


@dataclass(frozen=True)
class LoadUpdates:
    """Load the updates that the given events report."""

    events: tuple[Event, ...]


@dataclass(frozen=True)
class AnswerProbe:
    """Make a model for a client that answered a probe; issue a ticket to train this model."""

    event: Event


@dataclass(frozen=True)
class GrantTicket:
    """Issue a client's next ticket in the open round."""

    client: str


@dataclass(frozen=True)
class AnswerCustomize:
    """Make the customized model that a client requested outside of a round."""

    event: Event


Command = (
    AssignSlots
    | OpenRound
    | CloseRound
    | PublishRound
    | FailRound
    | OpenEvaluation
    | Finish
    | PrepareRound
    | LoadUpdates
    | AnswerProbe
    | GrantTicket
    | AnswerCustomize
)


# -- questions: the last command of every step -------------------------------------------------


@dataclass(frozen=True)
class ReadClients:
    """Asks how many clients have accepted the run."""


@dataclass(frozen=True)
class ReadStatus:
    """Asks whether the run is running, paused or stopping."""


@dataclass(frozen=True)
class ReadCandidates:
    """Asks which clients can be selected for the next round."""

    number: int


@dataclass(frozen=True)
class ReadStanding:
    """Asks for the run's status, the barred clients, and the round's deadline."""


@dataclass(frozen=True)
class ReadAbsences:
    """Asks which of the clients that a round waits for are away or have no valid token."""

    clients: frozenset[str]


@dataclass(frozen=True)
class ReadEvents:
    """Asks for the next events; `until` limits how long the worker waits for an event."""

    after: str
    """Position in the event log; the worker reads only events after this position."""
    until: float
    """Unix time at which the wait ends."""


@dataclass(frozen=True)
class CatchUp:
    """Asks for the events after a position in the log; the worker reads them without waiting."""

    after: str


@dataclass(frozen=True)
class DecideRound:
    """Asks the worker to compute the outcome of the closed round."""


@dataclass(frozen=True)
class ReadEvaluation:
    """Asks whether all online clients have evaluated the final models."""


Question = (
    ReadClients
    | ReadStatus
    | ReadCandidates
    | ReadStanding
    | ReadAbsences
    | ReadEvents
    | CatchUp
    | DecideRound
    | ReadEvaluation
)
