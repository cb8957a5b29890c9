"""The phases of a run as a pure function of a state, an event and the time.

    joining ──> selecting ──> collecting ──> aggregating ──> published | failed ──┬──> selecting
                                                                                  └──> evaluating
    evaluating ──> done

The machine makes the decisions, and `coordinator.py` carries out the machine's commands. The
machine itself does not wait, read a clock, or access Redis. `arrows.py` lists the
transitions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from rampart_fl.services.aggregator.state.redis_records import Event
from rampart_fl.services.aggregator.worker.phases import commands, events
from rampart_fl.services.aggregator.worker.phases.arrows import TRANSITIONS
from rampart_fl.services.aggregator.worker.phases.commands import Command, Question
from rampart_fl.services.aggregator.worker.phases.events import PhaseEvent
from rampart_fl.services.aggregator.worker.phases.round_events import handle_events
from rampart_fl.services.aggregator.worker.phases.state import PhaseState
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.selection import quota

POLL = 1.0
"""Seconds between checks of conditions that no event reports, such as deadlines."""
ABSENCES = 5.0
"""Seconds between two checks of which clients are absent while a round waits for these clients. The
checks are necessary because no event of the run reports that a client is away, or that a token was
revoked or replaced, or has expired."""
EVALUATION = 600.0
"""Time limit of the evaluation in seconds, if the experiment sets no deadline for rounds."""


class PhaseStep(NamedTuple):
    """The next state, the commands to carry out in order, and the question to ask after them."""

    state: PhaseState
    commands: tuple[Command, ...]
    question: Question | None
    """The next question; None once the run has ended."""


@dataclass(frozen=True)
class PhaseMachine:
    """Runs the phases of one experiment.

    Args:
        experiment: the experiment that is run.
        seed: the run's secret seed, see `Experiment.select`.
    """

    experiment: Experiment
    seed: int = field(repr=False)

    def step(self, state: PhaseState, event: PhaseEvent, now: float) -> PhaseStep:
        """Answers one event.

        Args:
            state: the state of the run.
            event: the answer to the previous question, or `LeaseTaken`.
            now: Unix time.
        """
        step = self._step(state, event, now)
        assert (state.phase, type(event), step.state.phase) in TRANSITIONS
        return step

    def _step(self, state: PhaseState, event: PhaseEvent, now: float) -> PhaseStep:
        match state.phase, event:
            case _, events.LeaseTaken():
                return self._take_over(state, now)
            case "joining", events.ClientsRead():
                return self._join(state, event, now)
            case "selecting", events.CandidatesRead():
                return self._select(state, event, now)
            case "collecting", events.StandingRead():
                return self._review(_with_standing(state, event), (), now)
            case "collecting", events.AbsencesRead():
                # An absent client may already have sent its update. The worker therefore reads all
                # updates before it decides whether the round still waits.
                known = replace(state, absent=event.absent, absences_read_at=now)
                return PhaseStep(known, (), commands.CatchUp(state.read_position))
            case "collecting", events.EventsRead():
                return self._collect(state, event.events, now)
            case "aggregating", events.EventsRead():
                return self._catch_up(state, event.events)
            case "aggregating", events.RoundDecided():
                after = replace(state, phase="published", deadline=None)
                return PhaseStep(after, (commands.PublishRound(),), commands.ReadStatus())
            case "aggregating", events.RoundRefused():
                return _fail(state, (), event.reason)
            case "published" | "failed", events.StatusRead():
                return self._next_round(state, event, now)
            case "evaluating", events.EvaluationRead():
                return _evaluate(state, event, now)
            case _, events.EventsRead():
                return _pass_time(state, event.events, now)
        raise AssertionError(f"{event} cannot happen in the phase {state.phase}")

    @property
    def _buffered(self) -> bool:
        return self.experiment.policy == "buffered"

    # -- between rounds ------------------------------------------------------------------------

    def _take_over(self, state: PhaseState, now: float) -> PhaseStep:
        """Handles `LeaseTaken`: prepares for an open round, and then asks the phase's question."""
        if state.phase not in ("collecting", "aggregating"):
            return PhaseStep(state, (), _question(state, now))
        # The clients in `pulls` got their tickets when the round opened. The worker finds newer
        # requests for tickets when it rereads the round's events.
        state = replace(state, pulls=())
        prepare = commands.PrepareRound(tuple(sorted(state.selected)))
        if state.phase == "collecting":
            return PhaseStep(state, (prepare,), commands.ReadStanding())
        return PhaseStep(state, (prepare,), commands.CatchUp(state.position))

    def _join(self, state: PhaseState, event: events.ClientsRead, now: float) -> PhaseStep:
        """Waits until enough clients accept the run; after the deadline, fewer clients suffice."""
        state = replace(state, status=event.status, deadline=event.deadline)
        if event.status == "stopping":
            return self._open_evaluation(state, 0, now)
        late = event.deadline is not None and now >= event.deadline
        # Once slots are assigned, the run no longer waits for clients, even if a member is evicted.
        enough = state.slots_assigned or event.clients >= self.experiment.clients_to_start(late)
        if event.status == "paused" or not enough:
            return PhaseStep(state, (), _wait(state, now))
        after = replace(state, phase="selecting")
        return PhaseStep(after, (commands.AssignSlots(),), commands.ReadCandidates(0))

    def _select(self, state: PhaseState, event: events.CandidatesRead, now: float) -> PhaseStep:
        """Opens a round as soon as a client can be selected and the disk has enough space."""
        state = replace(state, status=event.status)
        if event.status == "stopping":
            return self._open_evaluation(state, max(0, state.round - 1), now)
        # If all clients are quarantined, an empty round opens, so that quarantines can end.
        possible = (event.candidates or event.all_quarantined) and not event.disk_full
        if event.status == "paused" or not possible:
            return PhaseStep(state, (), _wait(state, now))
        number, limit = state.round, self.experiment.phases.collecting.time.max
        deadline = None if limit is None else now + limit
        chosen = self.experiment.select(number, event.candidates, event.awaited, self.seed)
        selected, examined = chosen.clients, chosen.examined
        # Under the buffered policy, every client in `pulls` gets a ticket, even if it is offline.
        # While a client waits for a ticket, Redis ignores the client's further requests for a
        # ticket.
        tickets = state.pulls if self._buffered and number else selected
        after = PhaseState(
            "collecting",
            number,
            event.status,
            opened_at=now,
            deadline=deadline,
            position=state.position,
            read_position=state.position,
            selected=frozenset(selected),
            examined=frozenset(examined),
            absences_read_at=now,
        )
        opening = commands.OpenRound(
            number, now, deadline, selected, examined, tickets, barrier=not self._buffered
        )
        prepare = commands.PrepareRound(selected)
        return PhaseStep(after, (opening, prepare), commands.ReadStanding())

    def _next_round(self, state: PhaseState, event: events.StatusRead, now: float) -> PhaseStep:
        """Waits while the run is paused, then selects clients or opens the evaluation."""
        state = replace(state, status=event.status)
        if event.status == "paused":
            return PhaseStep(state, (), _wait(state, now))
        following = state.round + 1
        if event.status == "stopping" or following >= self.experiment.rounds:
            return self._open_evaluation(state, state.round, now)
        after = replace(state, phase="selecting", round=following)
        return PhaseStep(after, (), commands.ReadCandidates(following))

    def _open_evaluation(self, state: PhaseState, number: int, now: float) -> PhaseStep:
        deadline = now + (self.experiment.phases.collecting.time.max or EVALUATION)
        after = replace(state, phase="evaluating", round=number, opened_at=now, deadline=deadline)
        opening = commands.OpenEvaluation(number, now, deadline)
        return PhaseStep(after, (opening,), commands.ReadEvaluation())

    # -- the open round ------------------------------------------------------------------------

    def _collect(self, state: PhaseState, batch: Sequence[Event], now: float) -> PhaseStep:
        """Handles events of the open round; in a buffered round, stops once the buffer is full."""
        full = self._quota(state.expected) if self._buffered else None
        after, answers = handle_events(state, batch, self._buffered, full)
        if after.stale:
            return PhaseStep(after, answers, commands.ReadStanding())
        return self._review(after, answers, now)

    def _review(self, state: PhaseState, answers: tuple[Command, ...], now: float) -> PhaseStep:
        """Decides whether the round closes, fails, or waits for more updates."""
        bounds, expected = self.experiment.phases.collecting, state.expected
        if state.status == "stopping":
            return _fail(state, answers, "stopped by the operator")
        if not expected:
            return _fail(state, answers, f"every client {_hindrance(state)}")
        if now < state.opened_at:
            # The clock has stepped back. Without this line, the minimum duration of the round would
            # grow by the size of the step.
            state = replace(state, opened_at=now)
        arrived, soonest = state.counted, state.opened_at + bounds.time.min
        # A round without `count.max` waits for all its clients, including the summoned ones.
        awaits = bounds.count.max is None and state.outstanding > 0
        if arrived >= self._quota(expected) and now >= soonest and not awaits:
            return self._close(state, answers)
        if state.deadline is not None and now >= state.deadline:
            least = 1 if self._buffered else max(1, bounds.count.least(expected))
            if arrived >= least:
                return self._close(state, answers)
            if state.caught_up_at < state.deadline:
                # Updates may have arrived that the worker has not read, above all after a takeover.
                known = replace(state, caught_up_at=now)
                return PhaseStep(known, answers, commands.CatchUp(state.read_position))
            reason = f"{arrived} of {expected} updates arrived, but {least} are needed"
            return _fail(state, answers, reason)
        if now - state.absences_read_at >= ABSENCES:
            waiting = state.selected - state.arrived
            return PhaseStep(state, answers, commands.ReadAbsences(waiting))
        moments = [now + POLL, state.deadline, soonest if soonest > now else None]
        until = min(moment for moment in moments if moment is not None)
        return PhaseStep(state, answers, commands.ReadEvents(state.read_position, until))

    def _quota(self, expected: int) -> int:
        """Number of updates after which the round closes, even before its deadline."""
        if self._buffered:
            return quota(self.experiment.buffer, expected)
        return max(1, self.experiment.phases.collecting.count.most(expected))

    def _close(self, state: PhaseState, answers: tuple[Command, ...]) -> PhaseStep:
        after = replace(state, phase="aggregating", closing=state.position)
        close = commands.CloseRound(state.round, state.position)
        # The worker computes a buffered round from the events that it has already handled. Before
        # it computes any other round, it reads all new events.
        question = commands.DecideRound() if self._buffered else commands.CatchUp(state.position)
        return PhaseStep(after, (*answers, close), question)

    def _catch_up(self, state: PhaseState, batch: Sequence[Event]) -> PhaseStep:
        """Handles the events before the end of the round, then asks for the round's outcome."""
        if self._buffered:
            # Receipts after the event that closed the round do not belong to the round.
            positions = [state.position, *(event.position for event in batch)]
            known = batch[: positions.index(state.closing)]
            after, answers = handle_events(state, known, buffered=True)
        else:
            # `DecideRound` reads the updates from their stored receipts. Only the requests for
            # customized models have to be handled here.
            answers = _customizations(batch)
            position = batch[-1].position if batch else state.position
            after = replace(state, position=position, read_position=position)
        return PhaseStep(after, answers, commands.DecideRound())


def _with_standing(state: PhaseState, event: events.StandingRead) -> PhaseState:
    return replace(
        state, status=event.status, deadline=event.deadline, barred=event.barred, stale=False
    )


def _hindrance(state: PhaseState) -> str:
    """Why no client can send an update for the open round."""
    if not state.selected:
        return "is quarantined"
    absent = ", is away or has no valid token" if state.absent else ""
    counted = "whose update would be aggregated" if state.examined else "of this round"
    return f"{counted} was evicted{absent}"


def _fail(state: PhaseState, answers: tuple[Command, ...], reason: str) -> PhaseStep:
    after = replace(state, phase="failed", deadline=None)
    return PhaseStep(after, (*answers, commands.FailRound(reason)), commands.ReadStatus())


def _evaluate(state: PhaseState, event: events.EvaluationRead, now: float) -> PhaseStep:
    """Waits until every online client has evaluated the final models, or until the deadline."""
    late = event.deadline is not None and now >= event.deadline
    if event.waiting and not late:
        return PhaseStep(replace(state, deadline=event.deadline), (), _wait(state, now))
    after = replace(state, phase="done", status="finished", deadline=None)
    return PhaseStep(after, (commands.Finish(),), None)


def _pass_time(state: PhaseState, batch: Sequence[Event], now: float) -> PhaseStep:
    """Answers requests for customized models, then asks the phase's question again.

    `position` stays unchanged, so the next round handles the events of this batch again. The next
    round skips the requests for customized models that have already been answered.
    """
    after = replace(state, read_position=batch[-1].position if batch else state.read_position)
    return PhaseStep(after, _customizations(batch), _question(after, now))


def _customizations(batch: Sequence[Event]) -> tuple[Command, ...]:
    return tuple(commands.AnswerCustomize(event) for event in batch if event.type == "customize")


def _question(state: PhaseState, now: float) -> Question:
    """The question that the machine asks in a phase without an open round."""
    match state.phase:
        case "joining":
            return commands.ReadClients()
        case "selecting":
            return commands.ReadCandidates(state.round)
        case "published" | "failed":
            return commands.ReadStatus()
        case "evaluating":
            return commands.ReadEvaluation()
        case _:
            return _wait(state, now)


def _wait(state: PhaseState, now: float) -> Question:
    """Asks for the next events."""
    return commands.ReadEvents(state.read_position, now + POLL)
