"""Every transition that the phase machine can make: the table of its state diagram."""

from typing import NamedTuple

from rampart_fl.services.aggregator.worker.phase_commands import (
    AnswerCustomize,
    AnswerProbe,
    CloseRound,
    Command,
    FailRound,
    Finish,
    GrantTicket,
    LoadUpdates,
    OpenEvaluation,
    OpenRound,
    PrepareRound,
    PublishRound,
    TrimEvents,
)
from rampart_fl.services.aggregator.worker.phase_events import (
    CandidatesRead,
    ClientsRead,
    EvaluationRead,
    EventsRead,
    LeaseTaken,
    PhaseEvent,
    RoundDecided,
    RoundRefused,
    StandingRead,
    StatusRead,
)
from rampart_fl.services.aggregator.worker.phase_state import MachinePhase


class Arrow(NamedTuple):
    """A transition: an event leads from one phase to another, or back to the same phase."""

    source: MachinePhase
    event: type[PhaseEvent]
    target: MachinePhase
    when: str = ""
    """The condition; empty if the event alone decides."""
    commands: tuple[type[Command], ...] = ()
    """The kinds of commands that may follow, in order."""


ANSWERS = (AnswerProbe, GrantTicket, AnswerCustomize, LoadUpdates)
"""Commands that answer events of the open round."""
ENOUGH = "enough updates"
FEW = "too few updates at the deadline"
MORE = "more rounds follow"
LAST = "stopping, or no round is left"
LEASE = "a worker takes over"
REQUEST = "a request for a customized model"

ARROWS = (
    Arrow("joining", LeaseTaken, "joining", LEASE),
    Arrow("joining", EventsRead, "joining", REQUEST, (AnswerCustomize,)),
    Arrow("joining", ClientsRead, "joining", "paused, or too few clients"),
    Arrow("joining", ClientsRead, "selecting", "enough clients; one at the deadline"),
    Arrow("joining", ClientsRead, "evaluating", "stopping", (OpenEvaluation,)),
    Arrow("selecting", EventsRead, "selecting", REQUEST, (AnswerCustomize,)),
    Arrow("selecting", CandidatesRead, "selecting", "paused, or no candidate"),
    Arrow("selecting", CandidatesRead, "collecting", "candidates", (OpenRound, PrepareRound)),
    Arrow("selecting", CandidatesRead, "evaluating", "stopping", (OpenEvaluation,)),
    Arrow("collecting", LeaseTaken, "collecting", LEASE, (PrepareRound,)),
    Arrow("collecting", StandingRead, "collecting", "more updates may come"),
    Arrow("collecting", EventsRead, "collecting", "more updates may come", ANSWERS),
    Arrow("collecting", StandingRead, "aggregating", ENOUGH, (CloseRound,)),
    Arrow("collecting", EventsRead, "aggregating", ENOUGH, (*ANSWERS, CloseRound)),
    Arrow("collecting", StandingRead, "failed", f"stopping, or {FEW}", (FailRound,)),
    Arrow("collecting", EventsRead, "failed", FEW, (*ANSWERS, FailRound)),
    Arrow("aggregating", LeaseTaken, "aggregating", LEASE, (PrepareRound,)),
    Arrow("aggregating", EventsRead, "aggregating", "", ANSWERS),
    Arrow("aggregating", RoundDecided, "published", "", (PublishRound,)),
    Arrow("aggregating", RoundRefused, "failed", "", (FailRound,)),
    Arrow("published", LeaseTaken, "published", LEASE),
    Arrow("published", EventsRead, "published", REQUEST, (AnswerCustomize,)),
    Arrow("published", StatusRead, "published", "paused"),
    Arrow("published", StatusRead, "selecting", MORE),
    Arrow("published", StatusRead, "evaluating", LAST, (OpenEvaluation,)),
    Arrow("failed", LeaseTaken, "failed", LEASE),
    Arrow("failed", EventsRead, "failed", REQUEST, (AnswerCustomize,)),
    Arrow("failed", StatusRead, "failed", "paused"),
    Arrow("failed", StatusRead, "selecting", MORE),
    Arrow("failed", StatusRead, "evaluating", LAST, (OpenEvaluation,)),
    Arrow("evaluating", LeaseTaken, "evaluating", LEASE),
    Arrow("evaluating", EventsRead, "evaluating", REQUEST, (AnswerCustomize,)),
    Arrow("evaluating", EvaluationRead, "evaluating", "an online client still measures"),
    Arrow("evaluating", EvaluationRead, "done", "all measured, or at the deadline", (Finish,)),
    Arrow("done", LeaseTaken, "done", LEASE),
    Arrow("done", EventsRead, "done", REQUEST, (AnswerCustomize, TrimEvents)),
)
TRANSITIONS = frozenset((arrow.source, arrow.event, arrow.target) for arrow in ARROWS)
"""The (phase, event, next phase) of all arrows; the machine makes no other step."""
