"""Seeded random walks of the phase machine through a small world in place of Redis.

In this world, clients join and upload, request models, and say that they are away. Operators pause,
resume, evict and stop. Deadlines pass, and workers die at any point between a step and its
commands.
"""

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from rampart_fl.services.aggregator.state.redis_records import Event
from rampart_fl.services.aggregator.worker.phases import commands, events
from rampart_fl.services.aggregator.worker.phases.arrows import ARROWS, QUESTIONS
from rampart_fl.services.aggregator.worker.phases.commands import Command, Question
from rampart_fl.services.aggregator.worker.phases.events import PhaseEvent
from rampart_fl.services.aggregator.worker.phases.machine import PhaseMachine
from rampart_fl.services.aggregator.worker.phases.state import MachinePhase, PhaseState
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.protocol.messages import RunState

ROUNDS, CLIENTS = 4, "abcdef"


class Died(Exception):
    """The worker died."""


@dataclass
class World:
    """The state in Redis, and the events that change it."""

    machine: PhaseMachine
    draws: random.Random
    now: float = 0.0
    phase: MachinePhase = "joining"
    round: int = 0
    status: RunState = "running"
    opened_at: float = 0.0
    deadline: float | None = None
    selected: tuple[str, ...] = ()
    examined: tuple[str, ...] = ()
    closing: str = "0-0"
    published: str = "0-0"
    pulls: tuple[str, ...] = ()
    stream: list[Event] = field(default_factory=list)
    joined: set[str] = field(default_factory=set)
    barred: set[str] = field(default_factory=set)
    revoked: set[str] = field(default_factory=set)
    """Clients without a valid token."""
    away: set[str] = field(default_factory=set)
    """Clients that have said that they do not train now."""
    tickets: set[str] = field(default_factory=set)
    received: set[str] = field(default_factory=set)
    """Clients whose update for the open round was accepted (policy with a barrier)."""
    carried_out: list[Command] = field(default_factory=list)
    """Every transition, in order."""
    counted: dict[int, frozenset[str]] = field(default_factory=dict)
    """The arrivals with which each round was closed, by round."""
    taken: set[tuple[str, type, str]] = field(default_factory=set)
    """The arrows that were taken."""

    @property
    def buffered(self) -> bool:
        """Whether rounds have no barrier."""
        return self.machine.experiment.policy == "buffered"

    @property
    def free(self) -> set[str]:
        """Clients that may take part in a round."""
        return self.joined - self.barred - self.revoked - self.away

    # -- what happens to a federation ----------------------------------------------------------

    def add(self, kind: str, client: str = "") -> None:
        """Adds an event to the stream."""
        fields = {"client": client, "round": str(self.round)}
        self.stream.append(Event(f"{len(self.stream) + 1}-0", kind, fields))

    def happen(self) -> None:
        """Advances the clock, and lets a random event happen."""
        self.now += self.draws.choice([0.0, 0.1, 1.0, 5.0])
        client = self.draws.choice(CLIENTS)
        match self.draws.choice(
            ["join", "upload", "upload", "upload", "pull", "ask", "away", "operate"]
        ):
            case "join" if client not in self.joined:
                self.joined.add(client)
                self.add("joined", client)
            case "upload" if client in self.tickets - self.barred - self.revoked:
                self.upload(client)
            case "pull" if self.buffered and client in self.free - self.tickets:
                self.add("pull", client)
            case "ask":
                self.add("customize", client)
            case "away":
                self.away ^= {client}
            case "operate" if self.status != "finished" and client in self.joined:
                self.operate(client)

    def upload(self, client: str) -> None:
        """A client uses its ticket."""
        if self.phase == "evaluating":
            self.tickets.discard(client)
            self.add("evaluation", client)
        elif self.phase == "collecting" or (self.buffered and self.phase != "done"):
            if self.draws.random() < 0.2:
                self.add("probe", client)
                return
            self.tickets.discard(client)
            self.received.add(client)
            self.add("update", client)

    def operate(self, client: str) -> None:
        """An operator decides about a client or its token, or steers the federation."""
        actions = [
            "bar",
            "bar",
            "reinstate",
            "pause",
            "resume",
            "resume",
            "stop",
            "revoke",
            "renew",
        ]
        action = self.draws.choice(actions)
        if action == "bar" and client not in self.barred:
            self.barred.add(client)
            self.tickets.discard(client)
            self.add("evicted", client)
        elif action == "reinstate" and client in self.barred:
            self.barred.discard(client)
            self.add("reinstated", client)
        elif action in ("pause", "resume") and self.status != "stopping":
            self.status = "paused" if action == "pause" else "running"
            self.add(self.status)
        elif action in ("revoke", "renew"):
            self.revoked.add(client) if action == "revoke" else self.revoked.discard(client)
        elif action == "stop" and self.draws.random() < 0.2:
            self.status = "stopping"
            self.add("stopping")

    # -- what a worker does --------------------------------------------------------------------

    def take_over(self) -> PhaseState:
        """The state that a new worker finds; the time without a worker extends the deadline."""
        away = self.draws.choice([0.0, 3.0, 30.0])
        self.now += away
        self.deadline = None if self.deadline is None else self.deadline + away
        return PhaseState(
            self.phase,
            self.round,
            self.status,
            self.opened_at,
            self.deadline,
            position=self.published,
            read_position=self.published,
            closing=self.closing,
            selected=frozenset(self.selected),
            examined=frozenset(self.examined),
            pulls=self.pulls,
        )

    def carry_out(self, command: Command, state: PhaseState) -> None:
        """Carries out a command as the scripts in Redis do."""
        match command:
            case commands.OpenRound():
                self.phase, self.round, self.opened_at = "collecting", command.number, self.now
                self.deadline, self.selected = command.deadline, command.selected
                self.examined = command.examined
                self.tickets = self.tickets if self.buffered else set()
                self.tickets |= set(command.tickets) - self.barred
                self.received = set()
                self.add("opened")
            case commands.CloseRound():
                assert (self.phase, self.round) == ("collecting", command.number)
                self.phase, self.closing = "aggregating", command.position
                self.counted[command.number] = state.arrived
            case commands.PublishRound() | commands.FailRound():
                failed = isinstance(command, commands.FailRound)
                self.phase, self.deadline = "failed" if failed else "published", None
                self.published, self.pulls = state.position, state.pulls
                self.add(self.phase)
            case commands.OpenEvaluation():
                self.phase, self.round, self.opened_at = "evaluating", command.number, self.now
                self.deadline, self.tickets = command.deadline, self.joined - self.barred
            case commands.Finish():
                self.phase, self.status, self.deadline = "done", "finished", None
            case commands.GrantTicket() if command.client not in self.barred | self.received:
                self.tickets.add(command.client)
        if isinstance(command, TRANSITIONS):
            self.carried_out.append(command)

    def after(self, position: str) -> list[Event]:
        """The events after a position."""
        return self.stream[int(position.partition("-")[0]) :]

    def ask(self, question: Question) -> PhaseEvent:
        """The answer to a question."""
        match question:
            case commands.ReadClients():
                return events.ClientsRead(self.status, self.deadline, len(self.joined))
            case commands.ReadStatus():
                return events.StatusRead(self.status)
            case commands.ReadCandidates():
                candidates = tuple(sorted(self.free))
                full = self.draws.random() < 0.1
                awaited = frozenset(c for c in CLIENTS if self.draws.random() < 0.3)
                return events.CandidatesRead(self.status, candidates, awaited, not candidates, full)
            case commands.ReadStanding():
                return events.StandingRead(self.status, self.deadline, frozenset(self.barred))
            case commands.ReadAbsences():
                return events.AbsencesRead(question.clients & (self.revoked | self.away))
            case commands.ReadEvents():
                result = self.after(question.after)[: self.draws.randint(1, 4)]
                if not result:
                    self.now = max(self.now, question.until)
                return events.EventsRead(tuple(result))
            case commands.CatchUp():
                return events.EventsRead(tuple(self.after(question.after)))
            case commands.DecideRound() if self.draws.random() < 0.2:
                return events.RoundRefused("a precondition")
            case commands.DecideRound():
                return events.RoundDecided()
            case commands.ReadEvaluation():
                return events.EvaluationRead(
                    self.deadline, bool(self.tickets - self.revoked - self.away)
                )


TRANSITIONS = (
    commands.OpenRound,
    commands.CloseRound,
    commands.PublishRound,
    commands.FailRound,
    commands.OpenEvaluation,
    commands.Finish,
)


def number(position: str) -> int:
    """The place of an event in the stream."""
    return int(position.partition("-")[0])


def work(world: World) -> None:
    """Runs one worker, from its takeover until it dies or the run ends."""
    state, event = world.take_over(), events.LeaseTaken()
    step = world.machine.step(state, event, world.now)
    died = world.draws.random() < 0.5
    for _ in range(5000):
        assert step == world.machine.step(state, event, world.now), "equal arguments, other answer"
        world.taken.add((state.phase, type(event), step.state.phase))
        check_step(world, state, step.state, step.commands, step.question)
        for command in step.commands:
            if died and world.draws.random() < 0.02:
                raise Died
            world.carry_out(command, step.state)
        if step.state.phase not in ("selecting", world.phase):
            raise AssertionError(f"{step.state.phase}, but Redis holds {world.phase}")
        if step.question is None:
            assert world.phase == "done"
            return
        world.happen()
        state, event = step.state, world.ask(step.question)
        step = world.machine.step(state, event, world.now)
    raise AssertionError(f"no end in sight: {state}")


def check_step(
    world: World,
    before: PhaseState,
    after: PhaseState,
    given: tuple[Command, ...],
    question: Question | None,
) -> None:
    """Checks the invariants of one step."""
    assert (question is None) == (after.phase == "done")
    assert question is None or type(question) in QUESTIONS[after.phase]
    assert number(before.position) <= number(after.position) <= number(after.read_position)
    assert (
        number(before.read_position) <= number(after.read_position) or after.phase == "collecting"
    )
    if (before.phase, before.round) == (after.phase, after.round) and before.deadline is not None:
        assert after.deadline is not None and after.deadline >= before.deadline
    assert sum(isinstance(command, TRANSITIONS) for command in given) <= 1
    if any(isinstance(command, commands.CloseRound) for command in given):
        assert after.arrived - after.barred, "a round without updates fails"
    if any(isinstance(command, commands.OpenRound) for command in given):
        assert after.status == "running" == world.status
    if isinstance(question, commands.ReadEvents) and after.phase == "collecting":
        assert world.now < question.until <= world.now + 1
    if isinstance(question, commands.DecideRound) and world.buffered:
        # A worker that takes over counts the same updates as the one that closed the round.
        assert after.position == after.closing
        assert after.arrived == world.counted.get(after.round, after.arrived)


def check_transitions(done: list[Command]) -> None:
    """Checks the commands of a whole run: `OpenRound (CloseRound? PublishRound | FailRound)`..."""
    assert isinstance(done[-1], commands.Finish)
    assert isinstance(done[-2], commands.OpenEvaluation)
    opened, closed, ended = 0, 0, 0
    for command in done[:-2]:
        match command:
            case commands.OpenRound():
                assert (command.number, ended) == (opened, opened), "the last round has not ended"
                opened += 1
            case commands.CloseRound():
                assert (command.number, closed) == (opened - 1, ended)
                closed += 1
            case commands.PublishRound():
                assert (opened, closed) == (ended + 1, ended + 1)
                ended += 1
            case commands.FailRound():
                assert opened == ended + 1
                ended, closed = ended + 1, ended + 1
            case _:
                raise AssertionError(f"{command} before the end")
    assert ended == opened <= ROUNDS
    assert done[-2].number == max(0, opened - 1)


def experiment(policy: str, draws: random.Random) -> Experiment:
    """An experiment with bounds drawn at random."""
    count = {"min": draws.choice([0.5, 1.0]), "max": draws.choice([2, 1.0])}
    time = {"min": draws.choice([0, 2]), "max": 20}
    tables: dict[str, Any] = {
        "name": "walk",
        "data": {"dataset": "digits", "clients": 3},
        "model": "logistic",
        "rounds": ROUNDS,
        "policy": policy,
        "buffer": draws.choice([1, 3, 1.0]),
        "fraction": draws.choice([0.5, 1.0]),
        "phases": {"collecting": {"count": count, "time": time}},
    }
    return Experiment.from_tables(tables)


def walk(policy: str, seed: int) -> World:
    """A run from its first to its last step."""
    draws = random.Random(f"{policy} {seed}")
    world = World(PhaseMachine(experiment(policy, draws), seed), draws)
    while True:
        try:
            work(world)
            return world
        except Died:
            continue


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["sync", "buffered"])
def test_random_walks_keep_the_invariants_and_take_every_transition(policy: str) -> None:
    taken = set[tuple[str, type, str]]()
    for seed in range(300):
        world = walk(policy, seed)
        check_transitions(world.carried_out)
        taken |= world.taken
    arrows = {(arrow.source, arrow.event, arrow.target) for arrow in ARROWS}
    missing = {(source, event.__name__, target) for source, event, target in arrows - taken}
    assert not missing
