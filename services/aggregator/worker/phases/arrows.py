"""The table of all transitions that the phase machine can make."""

from typing import NamedTuple

from rampart_fl.services.aggregator.worker.phases.commands import (
    AnswerCustomize,
    AnswerProbe,
    AssignSlots,
    CatchUp,
    CloseRound,
    Command,
    DecideRound,
    FailRound,
    Finish,
    GrantTicket,
    LoadUpdates,
    OpenEvaluation,
    OpenRound,
    PrepareRound,
    PublishRound,
    Question,
    ReadAbsences,
    ReadCandidates,
    ReadClients,
    ReadEvaluation,
    ReadEvents,
    ReadStanding,
    ReadStatus,
)
from rampart_fl.services.aggregator.worker.phases.events import (
    AbsencesRead,
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
from rampart_fl.services.aggregator.worker.phases.state import MachinePhase


class Arrow(NamedTuple):
    """A transition: an event leads from one phase to another, or back to the same phase."""

    source: MachinePhase
    event: type[PhaseEvent]
    target: MachinePhase
    when: str
    commands: tuple[type[Command], ...] = ()
    """The kinds of commands that the transition may cause, in order."""


ANSWERS = (AnswerProbe, GrantTicket, AnswerCustomize, LoadUpdates)
"""The commands with which the machine responds to the events of an open round."""
ALWAYS = "always"
CLIENTS = "enough clients have accepted, or the minimum number at the deadline"
CANDIDATES = "the disk has space, and there are candidates or only quarantined clients"
MORE = "more updates may come"
ENOUGH = "enough updates"
FEW = "too few updates at the deadline"
LOST = f"the run is stopping, every client is barred, or {FEW}"
UNABLE = f"no client can send an update, or {FEW}"
NEXT = "another round follows"
LAST = "the run is stopping, or this was the last round"

ARROWS = (
    Arrow("joining", LeaseTaken, "joining", ALWAYS),
    Arrow("joining", EventsRead, "joining", ALWAYS, (AnswerCustomize,)),
    Arrow("joining", ClientsRead, "joining", "paused, or too few clients"),
    Arrow("joining", ClientsRead, "selecting", CLIENTS, (AssignSlots,)),
    Arrow("joining", ClientsRead, "evaluating", "stopping", (OpenEvaluation,)),
    Arrow("selecting", EventsRead, "selecting", ALWAYS, (AnswerCustomize,)),
    Arrow("selecting", CandidatesRead, "selecting", "paused, no candidate, or the disk is full"),
    Arrow("selecting", CandidatesRead, "collecting", CANDIDATES, (OpenRound, PrepareRound)),
    Arrow("selecting", CandidatesRead, "evaluating", "stopping", (OpenEvaluation,)),
    Arrow("collecting", LeaseTaken, "collecting", ALWAYS, (PrepareRound,)),
    Arrow("collecting", StandingRead, "collecting", MORE),
    Arrow("collecting", AbsencesRead, "collecting", ALWAYS),
    Arrow("collecting", EventsRead, "collecting", MORE, ANSWERS),
    Arrow("collecting", StandingRead, "aggregating", ENOUGH, (CloseRound,)),
    Arrow("collecting", EventsRead, "aggregating", ENOUGH, (*ANSWERS, CloseRound)),
    Arrow("collecting", StandingRead, "failed", LOST, (FailRound,)),
    Arrow("collecting", EventsRead, "failed", UNABLE, (*ANSWERS, FailRound)),
    Arrow("aggregating", LeaseTaken, "aggregating", ALWAYS, (PrepareRound,)),
    Arrow("aggregating", EventsRead, "aggregating", ALWAYS, ANSWERS),
    Arrow("aggregating", RoundDecided, "published", "the outcome is computed", (PublishRound,)),
    Arrow("aggregating", RoundRefused, "failed", "a precondition is not met", (FailRound,)),
    Arrow("published", LeaseTaken, "published", ALWAYS),
    Arrow("published", EventsRead, "published", ALWAYS, (AnswerCustomize,)),
    Arrow("published", StatusRead, "published", "paused"),
    Arrow("published", StatusRead, "selecting", NEXT),
    Arrow("published", StatusRead, "evaluating", LAST, (OpenEvaluation,)),
    Arrow("failed", LeaseTaken, "failed", ALWAYS),
    Arrow("failed", EventsRead, "failed", ALWAYS, (AnswerCustomize,)),
    Arrow("failed", StatusRead, "failed", "paused"),
    Arrow("failed", StatusRead, "selecting", NEXT),
    Arrow("failed", StatusRead, "evaluating", LAST, (OpenEvaluation,)),
    Arrow("evaluating", LeaseTaken, "evaluating", ALWAYS),
    Arrow("evaluating", EventsRead, "evaluating", ALWAYS, (AnswerCustomize,)),
    Arrow("evaluating", EvaluationRead, "evaluating", "an online client still measures"),
    Arrow("evaluating", EvaluationRead, "done", "all measured, or deadline passed", (Finish,)),
)
TRANSITIONS = frozenset((arrow.source, arrow.event, arrow.target) for arrow in ARROWS)
"""All transitions that the machine makes, as triples (phase, event, next phase)."""

QUESTIONS: dict[MachinePhase, tuple[type[Question], ...]] = {
    "joining": (ReadClients, ReadEvents),
    "selecting": (ReadCandidates, ReadEvents),
    "collecting": (ReadStanding, ReadAbsences, CatchUp, ReadEvents),
    "aggregating": (CatchUp, DecideRound),
    "published": (ReadStatus, ReadEvents),
    "failed": (ReadStatus, ReadEvents),
    "evaluating": (ReadEvaluation, ReadEvents),
    "done": (),
}
"""The kinds of questions that the machine asks in each phase."""
