"""Every transition (arrow) of the phase machine, one case at a time."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from rampart_fl.services.aggregator.state.redis_records import Event
from rampart_fl.services.aggregator.worker import phases
from rampart_fl.services.aggregator.worker.phases.arrows import ARROWS, QUESTIONS
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
from rampart_fl.services.aggregator.worker.phases.machine import PhaseMachine
from rampart_fl.services.aggregator.worker.phases.state import MachinePhase, PhaseState
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.protocol.messages import RunState

NOW = 1000.0
ABC = frozenset("abc")


def machine(policy: str = "sync", **tables: Any) -> PhaseMachine:
    """Three clients and three rounds; at the deadline after 60 s, 60 % of the updates suffice."""
    phases = {"collecting": {"count": {"min": 0.6}, "time": {"max": 60}}}
    base = {"name": "small", "data": {"dataset": "digits", "clients": 3}, "model": "logistic"}
    given = {"rounds": 3, "phases": phases, "policy": policy, "buffer": 2, **tables}
    return PhaseMachine(Experiment.from_tables({**base, **given}), seed=1)


def collecting(count: Mapping[str, float], **time: float) -> dict[str, Any]:
    """The `phases` table with these bounds of the collection."""
    return {"collecting": {"count": count, "time": time}}


SYNC, BUFFERED = machine(), machine("buffered")
AT_MOST_TWO = machine(phases=collecting({"min": 0.6, "max": 2}, max=60))
AT_LEAST_30_S = machine(phases=collecting({"min": 0.6}, min=30, max=60))
ONE_OF_THREE = machine(fraction=0.3)
UNLIMITED = machine(phases={"collecting": {"time": {"max": None}}})


def event(kind: str, client: str = "", round_: int = 1, at: str = "7-0") -> Event:
    """An event of the stream."""
    return Event(at, kind, {"client": client, "round": str(round_)})


def updates(clients: str, round_: int = 1) -> EventsRead:
    """Updates of these clients for a round, at the positions 1-0, 2-0, ..."""
    result = [event("update", c, round_, f"{n}-0") for n, c in enumerate(clients, 1)]
    return EventsRead(tuple(result))


JOINING = PhaseState("joining", 0)
SELECTING = PhaseState("selecting", 1, position="3-0", read_position="5-0")
OPEN = PhaseState(
    "collecting",
    1,
    opened_at=NOW,
    deadline=NOW + 60,
    selected=ABC,
    stale=False,
    absences_read_at=NOW,
)
TWO_OF_THREE = replace(OPEN, arrived=frozenset("ab"))
CLOSED = replace(OPEN, phase="aggregating")
REPLAY = PhaseState("aggregating", 1, selected=ABC, position="0-0", closing="2-0")
PUBLISHED = PhaseState("published", 1, position="3-0", read_position="5-0")
EVALUATING = PhaseState("evaluating", 2, deadline=NOW + 60, read_position="5-0")


@dataclass(frozen=True)
class Case:
    """One step of the machine."""

    about: str
    state: PhaseState
    event: PhaseEvent
    answer: tuple[Command | Question | None, ...]
    """The commands, and the question after them."""
    now: float
    machine: PhaseMachine
    changes: Mapping[str, Any]
    """The fields of the state that change."""


def case(
    about: str,
    state: PhaseState,
    event: PhaseEvent,
    *answer: Command | Question | None,
    now: float = NOW,
    machine: PhaseMachine = SYNC,
    **changes: Any,
) -> Case:
    """One step: an event in a state is answered by commands and a question, and changes fields."""
    return Case(about, state, event, answer, now, machine, changes)


LATE = {"now": NOW + 60}
CAUGHT_UP = replace(OPEN, caught_up_at=NOW + 60)
CUSTOMIZE = event("customize", "z")
CUSTOMIZED = EventsRead((event("joined", "d", at="6-0"), CUSTOMIZE))
EVALUATION = OpenEvaluation(1, NOW, NOW + 60)
NAMES = ("a", "b", "c")


def opened(**fields: Any) -> dict[str, Any]:
    """How the state changes when round 1 opens for three clients."""
    return {
        "phase": "collecting",
        "opened_at": NOW,
        "deadline": NOW + 60,
        "read_position": "3-0",
        "absences_read_at": NOW,
    } | {
        "selected": ABC,
        **fields,
    }


JOINED = [
    case("asks who has accepted", JOINING, LeaseTaken(), ReadClients()),
    case(
        "too few have accepted",
        JOINING,
        ClientsRead("running", None, 2),
        ReadEvents("0-0", NOW + 1),
    ),
    case(
        "a pause holds the first round back",
        JOINING,
        ClientsRead("paused", None, 3),
        ReadEvents("0-0", NOW + 1),
        status="paused",
    ),
    case(
        "all have accepted",
        JOINING,
        ClientsRead("running", None, 3),
        AssignSlots(),
        ReadCandidates(0),
        phase="selecting",
    ),
    case(
        "a table may ask for fewer than all",
        JOINING,
        ClientsRead("running", None, 2),
        AssignSlots(),
        ReadCandidates(0),
        machine=machine(phases={"joining": {"clients": 2}}),
        phase="selecting",
    ),
    case(
        "assigned slots are enough, although a member was evicted before the worker took over",
        replace(JOINING, slots_assigned=True),
        ClientsRead("running", None, 2),
        AssignSlots(),
        ReadCandidates(0),
        phase="selecting",
    ),
    case(
        "one is too few before the deadline",
        JOINING,
        ClientsRead("running", NOW + 1, 1),
        ReadEvents("0-0", NOW + 1),
        deadline=NOW + 1,
    ),
    case(
        "one is enough at the deadline",
        JOINING,
        ClientsRead("running", NOW, 1),
        AssignSlots(),
        ReadCandidates(0),
        deadline=NOW,
        phase="selecting",
    ),
    case(
        "a table may ask for more than one at the deadline",
        JOINING,
        ClientsRead("running", NOW, 1),
        ReadEvents("0-0", NOW + 1),
        machine=machine(clients={"least": 2}),
        deadline=NOW,
    ),
    case(
        "nobody is too few even after the deadline",
        JOINING,
        ClientsRead("running", NOW - 9, 0),
        ReadEvents("0-0", NOW + 1),
        deadline=NOW - 9,
    ),
    case(
        "stopped before the first round",
        JOINING,
        ClientsRead("stopping", None, 3),
        OpenEvaluation(0, NOW, NOW + 60),
        ReadEvaluation(),
        phase="evaluating",
        status="stopping",
        opened_at=NOW,
        deadline=NOW + 60,
    ),
]
SELECTED = [
    case("nobody is there", SELECTING, CandidatesRead("running", ()), ReadEvents("5-0", NOW + 1)),
    case(
        "a pause holds the round back",
        SELECTING,
        CandidatesRead("paused", NAMES),
        ReadEvents("5-0", NOW + 1),
        status="paused",
    ),
    case(
        "a full disk holds the round back",
        SELECTING,
        CandidatesRead("running", NAMES, disk_full=True),
        ReadEvents("5-0", NOW + 1),
    ),
    case(
        "a full disk holds back a round without clients, too",
        SELECTING,
        CandidatesRead("running", (), all_quarantined=True, disk_full=True),
        ReadEvents("5-0", NOW + 1),
    ),
    case(
        "the round opens for the clients drawn",
        SELECTING,
        CandidatesRead("running", NAMES),
        OpenRound(1, NOW, NOW + 60, NAMES, (), NAMES, barrier=True),
        PrepareRound(NAMES),
        ReadStanding(),
        **opened(),
    ),
    case(
        "a client is summoned that was not drawn",
        SELECTING,
        CandidatesRead("running", NAMES, awaited=frozenset(NAMES)),
        OpenRound(1, NOW, NOW + 60, ("a", "b"), ("b",), ("a", "b"), barrier=True),
        PrepareRound(("a", "b")),
        ReadStanding(),
        machine=ONE_OF_THREE,
        **opened(selected=frozenset("ab"), examined=frozenset("b")),
    ),
    case(
        "a round without a deadline",
        SELECTING,
        CandidatesRead("running", NAMES),
        OpenRound(1, NOW, None, NAMES, (), NAMES, barrier=True),
        PrepareRound(NAMES),
        ReadStanding(),
        machine=UNLIMITED,
        **opened(deadline=None),
    ),
    case(
        "the round opens for nobody, so that quarantines end",
        SELECTING,
        CandidatesRead("running", (), all_quarantined=True),
        OpenRound(1, NOW, NOW + 60, (), (), (), barrier=True),
        PrepareRound(()),
        ReadStanding(),
        **opened(selected=frozenset()),
    ),
    case(
        "without a barrier, the first round gives everyone a ticket",
        replace(SELECTING, round=0),
        CandidatesRead("running", NAMES),
        OpenRound(0, NOW, NOW + 60, NAMES, (), NAMES, barrier=False),
        PrepareRound(NAMES),
        ReadStanding(),
        machine=BUFFERED,
        **opened(),
    ),
    case(
        "without a barrier, a later round gives a ticket to those who asked",
        replace(SELECTING, pulls=("c", "z")),
        CandidatesRead("running", NAMES),
        OpenRound(1, NOW, NOW + 60, NAMES, (), ("c", "z"), barrier=False),
        PrepareRound(NAMES),
        ReadStanding(),
        machine=BUFFERED,
        **opened(pulls=()),
    ),
    case(
        "stopped while it waits for clients",
        replace(SELECTING, round=2),
        CandidatesRead("stopping", ()),
        EVALUATION,
        ReadEvaluation(),
        phase="evaluating",
        round=1,
        status="stopping",
        opened_at=NOW,
        deadline=NOW + 60,
    ),
    case(
        "stopped while it waits for clients of the first round",
        replace(SELECTING, round=0),
        CandidatesRead("stopping", NAMES),
        OpenEvaluation(0, NOW, NOW + 60),
        ReadEvaluation(),
        phase="evaluating",
        round=0,
        status="stopping",
        opened_at=NOW,
        deadline=NOW + 60,
    ),
]


def standing(
    status: RunState = "running", deadline: float | None = NOW + 60, barred: str = ""
) -> StandingRead:
    """The event that reports the standing of clients in the open round."""
    return StandingRead(status, deadline, frozenset(barred))


STANDINGS = [
    case(
        "a worker that takes over prepares for the round, and reads its events again",
        replace(OPEN, selected=frozenset("cab"), pulls=("z",)),
        LeaseTaken(),
        PrepareRound(NAMES),
        ReadStanding(),
        pulls=(),
    ),
    case(
        "it waits for updates, and looks again after a second",
        replace(OPEN, stale=True),
        standing(barred="z"),
        ReadEvents("0-0", NOW + 1),
        barred=frozenset("z"),
        stale=False,
    ),
    case(
        "it waits no longer than for the deadline, which may have moved",
        OPEN,
        standing(deadline=NOW + 0.25),
        ReadEvents("0-0", NOW + 0.25),
        deadline=NOW + 0.25,
    ),
    case(
        "it waits no longer than for the shortest time",
        replace(OPEN, opened_at=NOW - 29.5),
        standing(),
        ReadEvents("0-0", NOW + 0.5),
        machine=AT_LEAST_30_S,
    ),
    case(
        "a pause does not touch the open round",
        OPEN,
        standing("paused"),
        ReadEvents("0-0", NOW + 1),
        status="paused",
    ),
    case(
        "a stop fails the open round",
        TWO_OF_THREE,
        standing("stopping"),
        FailRound("stopped by the operator"),
        ReadStatus(),
        phase="failed",
        status="stopping",
        deadline=None,
    ),
    case(
        "it does not wait for barred clients",
        TWO_OF_THREE,
        standing(barred="c"),
        CloseRound(1, "0-0"),
        CatchUp("0-0"),
        phase="aggregating",
        barred=frozenset("c"),
    ),
    case(
        "it waits for a client whose update it only examines",
        replace(TWO_OF_THREE, examined=frozenset("c")),
        standing(),
        ReadEvents("0-0", NOW + 1),
    ),
    case(
        "it does not wait for an examined client if it does not wait for all clients",
        replace(TWO_OF_THREE, examined=frozenset("c")),
        standing(),
        CloseRound(1, "0-0"),
        CatchUp("0-0"),
        phase="aggregating",
        machine=AT_MOST_TWO,
    ),
    case(
        "it does not count examined clients",
        replace(TWO_OF_THREE, examined=frozenset("b")),
        standing(),
        ReadEvents("0-0", NOW + 1),
        machine=AT_MOST_TWO,
    ),
    case(
        "it does not count barred clients",
        TWO_OF_THREE,
        standing(barred="b"),
        ReadEvents("0-0", NOW + 1),
        barred=frozenset("b"),
    ),
    case(
        "it does not wait for a client that lost its ticket, though it is reinstated",
        replace(TWO_OF_THREE, evicted=frozenset("c")),
        standing(),
        CloseRound(1, "0-0"),
        CatchUp("0-0"),
        phase="aggregating",
    ),
    case(
        "an update still counts whose client was evicted and reinstated",
        replace(TWO_OF_THREE, evicted=frozenset("a")),
        standing(),
        ReadEvents("0-0", NOW + 1),
    ),
    case(
        "every client of the round is evicted",
        OPEN,
        standing(barred="abc"),
        FailRound("every client of this round was evicted"),
        ReadStatus(),
        phase="failed",
        barred=ABC,
        deadline=None,
    ),
    case(
        "a round that opened for nobody",
        replace(OPEN, selected=frozenset()),
        standing(),
        FailRound("every client is quarantined"),
        ReadStatus(),
        phase="failed",
        deadline=None,
    ),
    case(
        "the deadline passed while nobody held the lease: enough came",
        TWO_OF_THREE,
        standing(deadline=NOW),
        CloseRound(1, "0-0"),
        CatchUp("0-0"),
        phase="aggregating",
        deadline=NOW,
    ),
    case(
        "the deadline passed while nobody held the lease: updates may have come before",
        OPEN,
        standing(deadline=NOW),
        CatchUp("0-0"),
        deadline=NOW,
        caught_up_at=NOW,
    ),
    case(
        "the deadline passed while nobody held the lease: too few came",
        replace(OPEN, deadline=NOW, caught_up_at=NOW),
        EventsRead(),
        FailRound("0 of 3 updates arrived, but 2 are needed"),
        ReadStatus(),
        phase="failed",
        deadline=None,
    ),
    case(
        "after a later deadline, the worker looks for updates once more",
        replace(OPEN, deadline=NOW, caught_up_at=NOW - 1),
        EventsRead(),
        CatchUp("0-0"),
        caught_up_at=NOW,
    ),
    case(
        "without a barrier, nothing is read any more once the round closes",
        replace(TWO_OF_THREE, position="2-0"),
        standing(),
        CloseRound(1, "2-0"),
        DecideRound(),
        machine=BUFFERED,
        phase="aggregating",
        closing="2-0",
    ),
]
OF_ABSENCES = [
    case(
        "absences are read every few seconds while the round waits",
        replace(TWO_OF_THREE, absences_read_at=NOW - 5),
        EventsRead(),
        ReadAbsences(frozenset("c")),
    ),
    case(
        "a worker that takes over does not know who is absent",
        replace(OPEN, absences_read_at=0.0),
        standing(),
        ReadAbsences(ABC),
    ),
    case(
        "absent clients may already have sent their updates, so these are read first",
        replace(OPEN, absences_read_at=0.0),
        AbsencesRead(ABC),
        CatchUp("0-0"),
        absences_read_at=NOW,
        absent=ABC,
    ),
    case(
        "the round does not wait for absent clients",
        replace(TWO_OF_THREE, deadline=None, absent=frozenset("c")),
        EventsRead(),
        CloseRound(1, "0-0"),
        CatchUp("0-0"),
        machine=UNLIMITED,
        phase="aggregating",
    ),
    case(
        "the pool does not wait for absent clients",
        replace(OPEN, arrived=frozenset("a"), absent=frozenset("bc")),
        EventsRead(),
        CloseRound(1, "0-0"),
        DecideRound(),
        machine=BUFFERED,
        phase="aggregating",
    ),
    case(
        "an update counts although its client was absent later",
        replace(TWO_OF_THREE, absent=frozenset("a")),
        EventsRead(),
        ReadEvents("0-0", NOW + 1),
    ),
    case(
        "the round waits again for a client that is no longer absent",
        replace(TWO_OF_THREE, absent=frozenset("c")),
        AbsencesRead(frozenset()),
        CatchUp("0-0"),
        absent=frozenset(),
    ),
    case(
        "all clients of the round are absent",
        replace(OPEN, absent=ABC),
        EventsRead(),
        FailRound("every client of this round was evicted, is away or has no valid token"),
        ReadStatus(),
        phase="failed",
        deadline=None,
    ),
]


def got(clients: str, at: str, **fields: Any) -> dict[str, Any]:
    """How the state changes with updates of these clients, up to a position."""
    return {"arrived": frozenset(clients), "position": at, "read_position": at, **fields}


def load(read: EventsRead) -> LoadUpdates:
    """The command that loads these updates."""
    return LoadUpdates(read.events)


def first(count: int, read: EventsRead) -> EventsRead:
    """The first events."""
    return EventsRead(read.events[:count])


LAST, PROBE, PULL = event("update", "c", at="8-0"), event("probe", "c"), event("pull", "c")
REQUESTS = (PROBE, CUSTOMIZE, PULL)
ANSWERS = (AnswerProbe(PROBE), AnswerCustomize(CUSTOMIZE), GrantTicket("c"))
COLLECTED = [
    case("nothing came in a second", OPEN, EventsRead(), ReadEvents("0-0", NOW + 1)),
    case(
        "updates came, but not all",
        OPEN,
        updates("ab"),
        load(updates("ab")),
        ReadEvents("2-0", NOW + 1),
        **got("ab", "2-0"),
    ),
    case(
        "all updates came",
        OPEN,
        updates("abc"),
        load(updates("abc")),
        CloseRound(1, "3-0"),
        CatchUp("3-0"),
        **got("abc", "3-0", phase="aggregating", closing="3-0"),
    ),
    case(
        "all updates that absent clients had sent came",
        replace(OPEN, absent=ABC),
        updates("ab"),
        load(updates("ab")),
        CloseRound(1, "2-0"),
        CatchUp("2-0"),
        **got("ab", "2-0", phase="aggregating", closing="2-0"),
    ),
    case(
        "as many came as the round takes",
        OPEN,
        updates("ab"),
        load(updates("ab")),
        CloseRound(1, "2-0"),
        CatchUp("2-0"),
        machine=AT_MOST_TWO,
        **got("ab", "2-0", phase="aggregating", closing="2-0"),
    ),
    case(
        "all came, but the round lasts longer",
        replace(OPEN, absences_read_at=NOW + 25),
        updates("abc"),
        load(updates("abc")),
        ReadEvents("3-0", NOW + 30),
        now=NOW + 29.5,
        machine=AT_LEAST_30_S,
        **got("abc", "3-0"),
    ),
    case(
        "the shortest time is over, and all had come",
        replace(OPEN, arrived=ABC),
        EventsRead(),
        CloseRound(1, "0-0"),
        CatchUp("0-0"),
        now=NOW + 30,
        machine=AT_LEAST_30_S,
        phase="aggregating",
    ),
    case(
        "the clock has stepped back, and all had come",
        replace(OPEN, arrived=ABC),
        EventsRead(),
        CloseRound(1, "0-0"),
        CatchUp("0-0"),
        now=NOW - 3600,
        phase="aggregating",
        opened_at=NOW - 3600,
    ),
    case(
        "the clock has stepped back, so the shortest time begins again",
        replace(OPEN, arrived=ABC),
        EventsRead(),
        ReadEvents("0-0", NOW - 3599),
        now=NOW - 3600,
        machine=AT_LEAST_30_S,
        opened_at=NOW - 3600,
    ),
    case(
        "enough have come at the deadline",
        TWO_OF_THREE,
        EventsRead(),
        CloseRound(1, "0-0"),
        CatchUp("0-0"),
        **LATE,
        phase="aggregating",
    ),
    case(
        "enough have not come just before the deadline",
        replace(TWO_OF_THREE, absences_read_at=NOW + 55),
        EventsRead(),
        ReadEvents("0-0", NOW + 60),
        now=NOW + 59.5,
    ),
    case(
        "too few have come at the deadline; the last ones are answered nevertheless",
        CAUGHT_UP,
        EventsRead((*updates("a").events, *REQUESTS)),
        *ANSWERS,
        load(updates("a")),
        FailRound("1 of 3 updates arrived, but 2 are needed"),
        ReadStatus(),
        **LATE,
        **got("a", "7-0", phase="failed", deadline=None),
    ),
    case(
        "the last update came; requests beside it are answered nevertheless",
        TWO_OF_THREE,
        EventsRead((*REQUESTS, LAST)),
        *ANSWERS,
        LoadUpdates((LAST,)),
        CloseRound(1, "8-0"),
        CatchUp("8-0"),
        **got("abc", "8-0", phase="aggregating", closing="8-0"),
    ),
    case(
        "no deadline, no failure",
        replace(OPEN, deadline=None, absences_read_at=NOW + 3599),
        EventsRead(),
        ReadEvents("0-0", NOW + 3601),
        now=NOW + 3600,
        machine=UNLIMITED,
    ),
    case(
        "an update of another round, or a second one, does not count",
        replace(OPEN, arrived=frozenset("a")),
        EventsRead((event("update", "b", 0), event("update", "a"))),
        ReadEvents("7-0", NOW + 1),
        **got("a", "7-0"),
    ),
    case(
        "probes and requests are answered in order, then updates are loaded",
        OPEN,
        EventsRead((*updates("a").events, *REQUESTS)),
        *ANSWERS,
        load(updates("a")),
        ReadEvents("7-0", NOW + 1),
        **got("a", "7-0"),
    ),
    case(
        "an answer to an old probe is not answered",
        OPEN,
        EventsRead((event("probe", "c", 0),)),
        ReadEvents("7-0", NOW + 1),
        position="7-0",
        read_position="7-0",
    ),
    case(
        "an eviction takes a ticket, and the standing is read again",
        OPEN,
        EventsRead((event("evicted", "c"),)),
        ReadStanding(),
        evicted=frozenset("c"),
        stale=True,
        position="7-0",
        read_position="7-0",
    ),
    case(
        "an eviction before the round opened took no ticket of it",
        replace(OPEN, stale=True),
        EventsRead((event("evicted", "c"), event("opened"))),
        ReadStanding(),
        position="7-0",
        read_position="7-0",
    ),
    case(
        "even at the deadline, the standing is read first",
        OPEN,
        EventsRead((event("reinstated", "c"),)),
        ReadStanding(),
        **LATE,
        stale=True,
        position="7-0",
        read_position="7-0",
    ),
    *(
        case(
            f"the standing is read again after {kind}",
            OPEN,
            EventsRead((event(kind, "c"),)),
            ReadStanding(),
            stale=True,
            position="7-0",
            read_position="7-0",
        )
        for kind in ("reinstated", "confirmed", "dismissed", "stopping")
    ),
    *(
        case(
            f"{kind} does not touch the round",
            OPEN,
            EventsRead((event(kind, "d"),)),
            ReadEvents("7-0", NOW + 1),
            position="7-0",
            read_position="7-0",
        )
        for kind in ("joined", "paused", "running", "ticket", "mode", "evaluation")
    ),
]
WITHOUT_A_BARRIER = [
    case(
        "the update that fills the buffer ends the round; the next round gets the rest",
        OPEN,
        updates("bac"),
        load(first(2, updates("bac"))),
        CloseRound(1, "2-0"),
        DecideRound(),
        machine=BUFFERED,
        **got("ab", "2-0", phase="aggregating", closing="2-0"),
    ),
    case(
        "an update or probe for an earlier round counts",
        OPEN,
        EventsRead((event("update", "a", 0), event("probe", "c", 0))),
        AnswerProbe(event("probe", "c", 0)),
        LoadUpdates((event("update", "a", 0),)),
        ReadEvents("7-0", NOW + 1),
        machine=BUFFERED,
        **got("a", "7-0"),
    ),
    case(
        "who has sent its update waits for the next round",
        replace(OPEN, arrived=frozenset("a")),
        EventsRead((event("pull", "a"), event("pull", "b"))),
        GrantTicket("b"),
        ReadEvents("7-0", NOW + 1),
        machine=BUFFERED,
        pulls=("a",),
        position="7-0",
        read_position="7-0",
    ),
    case(
        "a client that joins is expected at once",
        OPEN,
        EventsRead((event("joined", "d"),)),
        ReadStanding(),
        machine=BUFFERED,
        selected=frozenset("abcd"),
        stale=True,
        position="7-0",
        read_position="7-0",
    ),
    case(
        "an eviction takes nobody from the round but by its standing",
        OPEN,
        EventsRead((event("evicted", "c"),)),
        ReadStanding(),
        machine=BUFFERED,
        stale=True,
        position="7-0",
        read_position="7-0",
    ),
    case(
        "the buffer is full of barred clients: one event at a time",
        replace(TWO_OF_THREE, barred=frozenset("ab")),
        EventsRead((event("ticket", at="7-0"), event("ticket", at="8-0"))),
        ReadEvents("7-0", NOW + 1),
        machine=machine("buffered", buffer=1),
        position="7-0",
        read_position="7-0",
    ),
    case(
        "one update is enough at the deadline",
        replace(OPEN, arrived=frozenset("a")),
        EventsRead(),
        CloseRound(1, "0-0"),
        DecideRound(),
        machine=BUFFERED,
        **LATE,
        phase="aggregating",
    ),
    case(
        "no update is too few at the deadline",
        CAUGHT_UP,
        EventsRead(),
        FailRound("0 of 3 updates arrived, but 1 are needed"),
        ReadStatus(),
        machine=BUFFERED,
        **LATE,
        phase="failed",
        deadline=None,
    ),
]
REPEATED = [replace(request, position=f"{n}-0") for n, request in enumerate(REQUESTS, 3)]
CLOSING = [
    case(
        "a worker that takes over a closed round reads its events again",
        replace(CLOSED, pulls=("z",)),
        LeaseTaken(),
        PrepareRound(NAMES),
        CatchUp("0-0"),
        pulls=(),
    ),
    case("nothing more has happened", CLOSED, EventsRead(), DecideRound()),
    case(
        "the round accounts for all events so far; its updates are in its receipts",
        CLOSED,
        EventsRead((PROBE, CUSTOMIZE, event("update", "c", at="8-0"))),
        AnswerCustomize(CUSTOMIZE),
        DecideRound(),
        position="8-0",
        read_position="8-0",
    ),
    case(
        "without a barrier, only the events up to the last one of the round count",
        REPLAY,
        updates("bac"),
        load(first(2, updates("bac"))),
        DecideRound(),
        machine=BUFFERED,
        **got("ab", "2-0"),
    ),
    case(
        "without a barrier, they are answered again",
        replace(REPLAY, closing="8-0"),
        EventsRead((*updates("a").events, event("pull", "a", at="2-0"), *REPEATED, LAST)),
        *(AnswerProbe(REPEATED[0]), AnswerCustomize(REPEATED[1]), GrantTicket("c")),
        LoadUpdates((*updates("a").events, LAST)),
        DecideRound(),
        machine=BUFFERED,
        **got("ac", "8-0", pulls=("a",)),
    ),
    case(
        "without a barrier, a round may have closed without events",
        replace(REPLAY, closing="0-0"),
        updates("a"),
        DecideRound(),
        machine=BUFFERED,
    ),
    case(
        "the outcome is published",
        CLOSED,
        RoundDecided(),
        PublishRound(),
        ReadStatus(),
        phase="published",
        deadline=None,
    ),
    case(
        "the rule refuses the updates",
        CLOSED,
        RoundRefused("krum needs n > 2f + 2 rows: n=3, f=1"),
        FailRound("krum needs n > 2f + 2 rows: n=3, f=1"),
        ReadStatus(),
        phase="failed",
        deadline=None,
    ),
]


def ended(phase: MachinePhase) -> list[Case]:
    """Cases after a round that was published or that failed."""
    state = replace(PUBLISHED, phase=phase)
    evaluation = {"phase": "evaluating", "opened_at": NOW, "deadline": NOW + 60}
    return [
        case(f"{phase}: a worker takes over", state, LeaseTaken(), ReadStatus()),
        case(
            f"{phase}: the next round",
            state,
            StatusRead("running"),
            ReadCandidates(2),
            phase="selecting",
            round=2,
        ),
        case(
            f"{phase}: resumed after a pause",
            replace(state, status="paused"),
            StatusRead("running"),
            ReadCandidates(2),
            phase="selecting",
            round=2,
            status="running",
        ),
        case(
            f"{phase}: a pause holds the next round back",
            state,
            StatusRead("paused"),
            ReadEvents("5-0", NOW + 1),
            status="paused",
        ),
        case(
            f"{phase}: stopped",
            state,
            StatusRead("stopping"),
            EVALUATION,
            ReadEvaluation(),
            **evaluation,
            status="stopping",
        ),
        case(
            f"{phase}: the last round",
            replace(state, round=2),
            StatusRead("running"),
            OpenEvaluation(2, NOW, NOW + 60),
            ReadEvaluation(),
            **evaluation,
        ),
        case(
            f"{phase}: a pause holds the evaluation back, too",
            replace(state, round=2),
            StatusRead("paused"),
            ReadEvents("5-0", NOW + 1),
            status="paused",
        ),
    ]


ENDS = [
    *ended("published"),
    *ended("failed"),
    case(
        "the evaluation ends after ten minutes at the latest",
        replace(PUBLISHED, round=2),
        StatusRead("running"),
        OpenEvaluation(2, NOW, NOW + 600),
        ReadEvaluation(),
        machine=UNLIMITED,
        phase="evaluating",
        opened_at=NOW,
        deadline=NOW + 600,
    ),
    case("a worker takes over the evaluation", EVALUATING, LeaseTaken(), ReadEvaluation()),
    case(
        "somebody still measures; the deadline has moved",
        EVALUATING,
        EvaluationRead(NOW + 90, waiting=True),
        ReadEvents("5-0", NOW + 1),
        deadline=NOW + 90,
    ),
    *(
        case(
            about,
            EVALUATING,
            EvaluationRead(deadline, waiting),
            Finish(),
            None,
            phase="done",
            status="finished",
            deadline=None,
        )
        for about, deadline, waiting in (
            ("everyone has measured", NOW + 60, False),
            ("somebody has not measured at the deadline", NOW, True),
        )
    ),
]
WAITS: list[tuple[MachinePhase, Question]] = [
    ("joining", ReadClients()),
    ("selecting", ReadCandidates(1)),
    ("published", ReadStatus()),
    ("failed", ReadStatus()),
    ("evaluating", ReadEvaluation()),
]
BETWEEN_ROUNDS = [
    case(
        f"{phase}: a customized model is made; the next round reads the other events again",
        PhaseState(phase, 1, position="3-0", read_position="5-0"),
        CUSTOMIZED,
        AnswerCustomize(CUSTOMIZE),
        question,
        read_position="7-0",
    )
    for phase, question in WAITS
] + [
    case(
        f"{phase}: nothing happened",
        PhaseState(phase, 1, read_position="5-0"),
        EventsRead(),
        question,
    )
    for phase, question in WAITS
]
CASES = [
    *JOINED,
    *SELECTED,
    *STANDINGS,
    *OF_ABSENCES,
    *COLLECTED,
    *WITHOUT_A_BARRIER,
    *CLOSING,
    *ENDS,
    *BETWEEN_ROUNDS,
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.about)
def test_step_gives_the_expected_state_commands_and_question(case: Case) -> None:
    step = case.machine.step(case.state, case.event, case.now)
    assert step.state == replace(case.state, **case.changes)
    assert (*step.commands, step.question) == case.answer
    assert hash(step.state), "every field is immutable"


def test_cases_cover_every_transition_with_every_command() -> None:
    taken = dict[tuple[str, type, str], set[type]]()
    for one in CASES:
        target = one.changes.get("phase", one.state.phase)
        arrow = (one.state.phase, type(one.event), target)
        taken.setdefault(arrow, set()).update(map(type, one.answer[:-1]))
    assert taken == {(a.source, a.event, a.target): set(a.commands) for a in ARROWS}


def test_commands_have_the_order_of_the_transition_table() -> None:
    arrows = {(arrow.source, arrow.event, arrow.target): arrow.commands for arrow in ARROWS}
    answers = ("AnswerProbe", "GrantTicket", "AnswerCustomize")  # In the order of their events.
    for one in CASES:
        arrow = arrows[one.state.phase, type(one.event), one.changes.get("phase", one.state.phase)]
        places = [arrow.index(type(command)) for command in one.answer[:-1]]
        ordered = [n for n in places if arrow[n].__name__ not in answers]
        assert ordered == sorted(ordered)


def test_each_phase_asks_exactly_its_declared_questions() -> None:
    asked = dict[str, set[type]]()
    for one in CASES:
        phase = one.changes.get("phase", one.state.phase)
        question = one.answer[-1]
        asked.setdefault(phase, set()).update([] if question is None else [type(question)])
    assert asked == {phase: set(questions) for phase, questions in QUESTIONS.items()}


@pytest.mark.parametrize("state", [JOINING, SELECTING, OPEN, CLOSED, PUBLISHED, EVALUATING])
def test_event_of_another_phase_raises_an_error(state: PhaseState) -> None:
    given = {
        ClientsRead: ClientsRead("running", None, 3),
        CandidatesRead: CandidatesRead("running", NAMES),
        StandingRead: standing(),
        AbsencesRead: AbsencesRead(frozenset()),
        RoundDecided: RoundDecided(),
        RoundRefused: RoundRefused("no"),
        StatusRead: StatusRead("running"),
        EvaluationRead: EvaluationRead(None, waiting=False),
    }
    known = {arrow.event for arrow in ARROWS if arrow.source == state.phase}
    strange = [one for kind, one in given.items() if kind not in known]
    assert len(strange) >= 5
    for one in strange:
        with pytest.raises(AssertionError, match="cannot happen in the phase"):
            SYNC.step(state, one, NOW)


PURE = ("state", "events", "commands", "arrows", "round_events")
ALLOWED = {
    *("collections.abc", "dataclasses", "typing"),
    "rampart_fl.services.aggregator.state.redis_records",
    "rampart_fl.services.aggregator.worker.phases",
    "rampart_fl.shared.experiment",
    "rampart_fl.shared.experiment.selection",
    "rampart_fl.shared.protocol.messages",
}
"""What the machine may import: nothing that waits, tells the time, or reaches Redis or torch."""


@pytest.mark.parametrize("name", [*PURE, "machine"])
def test_phase_machine_imports_only_pure_modules_and_never_awaits(name: str) -> None:
    source = Path(phases.__file__).with_name(f"{name}.py")
    nodes = list(ast.walk(ast.parse(source.read_text())))
    ours = {f"rampart_fl.services.aggregator.worker.phases.{one}" for one in PURE}
    imported = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    assert imported <= ALLOWED | ours
    assert not [node for node in nodes if isinstance(node, ast.Import | ast.Await)]
