"""Runs the phases of a run under one lease, by carrying out the phase machine's commands.

Every transition is one atomic Redis script. The script does nothing if the worker's fencing token
is no longer current. If a worker dies, the next worker reads the same events again, starting after
the last published position. The next worker therefore computes the same digests.
"""

import logging
import time
from collections.abc import Sequence
from typing import assert_never

from rampart_fl.services.aggregator.state.redis_records import Event, RunSummary
from rampart_fl.services.aggregator.worker.disk.blobs_in_use import blobs_in_use
from rampart_fl.services.aggregator.worker.disk.space import DiskSpace
from rampart_fl.services.aggregator.worker.liveness import Liveness
from rampart_fl.services.aggregator.worker.open_round import ClosedRound, OpenRoundData
from rampart_fl.services.aggregator.worker.phases import commands, events
from rampart_fl.services.aggregator.worker.phases.commands import Command, Question
from rampart_fl.services.aggregator.worker.phases.events import PhaseEvent
from rampart_fl.services.aggregator.worker.phases.machine import PhaseMachine
from rampart_fl.services.aggregator.worker.phases.state import PhaseState
from rampart_fl.services.aggregator.worker.round_engine import RoundResult
from rampart_fl.services.aggregator.worker.round_publisher import RoundPublisher
from rampart_fl.services.aggregator.worker.run_clock import RunClock
from rampart_fl.services.aggregator.worker.run_resources import RunResources
from rampart_fl.services.aggregator.worker.slot_assignment import assign_slots, count_accepted
from rampart_fl.services.aggregator.worker.ticket_issuer import TicketIssuer
from rampart_fl.shared.errors import PreconditionError

log = logging.getLogger(__name__)


class Coordinator:
    """Runs the phases of one run under one lease.

    Args:
        resources: the run's state, and the engine that computes on it.
        offline_after: seconds without a request after which a client is not selected.
        models_kept: number of newest rounds whose global models are kept.
    """

    def __init__(self, resources: RunResources, offline_after: float, models_kept: int = 1) -> None:
        self.stores = stores = resources.stores
        self.records = resources.records
        self.round_engine = resources.round_engine
        self.compute = resources.compute
        self.experiment = resources.experiment
        self.fence = resources.fence
        self.liveness = Liveness(resources.clients, stores.members, stores.evictions, offline_after)
        self.ticket_issuer = TicketIssuer(resources)
        self.disk_space = DiskSpace(resources)
        self.machine = PhaseMachine(resources.experiment, self.round_engine.rounds.seed)
        self.opened = OpenRoundData()
        self.clock = RunClock(resources.clients.redis)
        self.publisher = RoundPublisher(resources, models_kept, self.clock)

    # -- the main flow -------------------------------------------------------------------------

    async def run(self) -> None:
        """Takes over the run, and runs the phases until the run has ended."""
        state, event = await self.take_over()
        while event is not None:
            state, event = await self.advance(state, event)

    async def take_over(self) -> tuple[PhaseState, PhaseEvent | None]:
        """Restores the state of the run from Redis and blobs."""
        run = await self.stores.state.read()
        assert run is not None
        await self.clock.read()
        snapshot = run.snapshot
        await self.compute(self.round_engine.restore, snapshot)
        await self.publisher.restore(run.round)
        state = PhaseState(
            phase=run.phase,
            round=run.round,
            status=run.status,
            opened_at=run.opened_at,
            deadline=run.deadline,
            position=snapshot.position,
            read_position=snapshot.position,
            closing=run.closing,
            selected=frozenset(run.selected),
            examined=frozenset(run.examined).intersection(run.selected),
            pulls=snapshot.pulls,
            slots_assigned=run.slots_assigned,
        )
        return state, events.LeaseTaken()

    async def advance(
        self, state: PhaseState, event: PhaseEvent
    ) -> tuple[PhaseState, PhaseEvent | None]:
        """Takes one step of the phase machine; returns the next state and event.

        The next event is None once the run has ended.
        """
        step = self.machine.step(state, event, self.clock.now())
        for command in step.commands:
            await self.carry_out(command, step.state)
        if step.state.phase != state.phase:
            log.info("phase %s", step.state.phase, extra={"round": step.state.round})
        question = step.question
        return step.state, None if question is None else await self.ask(question, step.state)

    async def carry_out(self, command: Command, state: PhaseState) -> None:
        """Carries out one command of the phase machine."""
        issuer = self.ticket_issuer
        match command:
            case commands.AssignSlots():
                await assign_slots(self.stores.members, self.experiment, self.fence)
            case commands.OpenRound():
                await self.open_round(command)
            case commands.PrepareRound():
                self.opened = OpenRoundData()
                await self.compute(self.round_engine.open_round, command.selected)
            case commands.LoadUpdates():
                await self.load(command.events)
            case commands.AnswerProbe():
                await issuer.answer_probe(command.event, state.round, self.opened)
            case commands.GrantTicket():
                await issuer.grant(command.client, state.round, self.opened)
            case commands.AnswerCustomize():
                await issuer.answer_customize(command.event)
            case commands.CloseRound():
                await self.stores.rounds.close(self.fence, command.number, command.position)
            case commands.PublishRound():
                await self.publisher.publish(state, self.opened)
            case commands.FailRound():
                await self.publisher.fail(state, self.opened, command.reason)
            case commands.OpenEvaluation():
                await self.open_evaluation(command)
            case commands.Finish():
                await self.finish()
            case _:
                assert_never(command)

    async def ask(self, question: Question, state: PhaseState) -> PhaseEvent:
        """The answer to a question of the phase machine."""
        match question:
            case commands.ReadClients():
                summary = await self.summary()
                clients = await count_accepted(
                    self.stores.members, self.experiment, summary.deadline
                )
                return events.ClientsRead(summary.status, summary.deadline, clients)
            case commands.ReadStatus():
                return events.StatusRead((await self.summary()).status)
            case commands.ReadCandidates():
                return await self.read_candidates(question.number)
            case commands.ReadStanding():
                summary, barred = await self.summary(), await self.stores.evictions.barred()
                return events.StandingRead(summary.status, summary.deadline, barred.standing.barred)
            case commands.ReadAbsences():
                absent = await self.liveness.absent(question.clients)
                return events.AbsencesRead(frozenset(absent))
            case commands.ReadEvents():
                patience = max(0.01, question.until - self.clock.now())
                batch = await self.stores.events.read(question.after, patience)
                return events.EventsRead(tuple(batch))
            case commands.CatchUp():
                return await self.catch_up(question.after)
            case commands.DecideRound():
                return await self.decide(state)
            case commands.ReadEvaluation():
                summary, holders = await self.summary(), await self.stores.tickets.holders()
                waiting = bool(await self.liveness.online(holders))
                return events.EvaluationRead(summary.deadline, waiting)

    # -- the open round ------------------------------------------------------------------------

    async def read_candidates(self, number: int) -> events.CandidatesRead:
        """Reads which clients can be selected for a round, and what may delay the round."""
        await self.clock.read()
        summary, candidates = await self.summary(), await self.liveness.candidates(number)
        blocked = not candidates and await self.liveness.all_quarantined(number)
        opening = summary.status == "running" and (candidates or blocked)
        snapshot, awaited = self.publisher.snapshot, frozenset[str]()
        if snapshot.awaited:
            mode = (await self.stores.evictions.barred()).standing.mode
            if (mode or self.experiment.server.eviction.mode) != "observe":
                awaited = frozenset(snapshot.awaited).difference(snapshot.silent)
        disk_full = await self.disk_space.lacking(number, candidates if opening else None, awaited)
        return events.CandidatesRead(summary.status, tuple(candidates), awaited, blocked, disk_full)

    async def open_round(self, command: commands.OpenRound) -> None:
        """Opens a round and issues the clients' tickets."""
        deadline = command.deadline if command.barrier else None
        ticket, number = self.ticket_issuer.first_ticket, command.number
        await self.stores.rounds.open(
            self.fence,
            number,
            "collecting",
            command.opened_at,
            command.deadline,
            {client: ticket(client, number, deadline) for client in command.tickets},
            command.selected,
            command.examined,
            clear=command.barrier,
        )
        log.info("round opened", extra={"round": number, "clients": len(command.selected)})

    async def load(self, arrived: Sequence[Event]) -> None:
        """Loads the updates that the given events report."""
        receipts = {event.client: event.receipt for event in arrived}
        self.opened.receipts |= receipts
        started = time.perf_counter()
        await self.compute(self.round_engine.load, list(receipts.values()))
        self.opened.loading += time.perf_counter() - started

    async def catch_up(self, position: str) -> events.EventsRead:
        """Reads all events after a position in the event log, up to the newest event."""
        batch = list[Event]()
        while position != await self.stores.events.last_position():
            batch += await self.stores.events.read(position, 0.001)
            position = batch[-1].position if batch else position
        return events.EventsRead(tuple(batch))

    async def decide(self, state: PhaseState) -> events.RoundDecided | events.RoundRefused:
        """Computes the outcome of a closed round."""
        buffered, opened = self.experiment.policy == "buffered", self.opened
        for receipt in [] if buffered else await self.stores.uploads.receipts(state.round):
            opened.uploads.add(receipt.digest)
            if receipt.kind == "update":
                opened.receipts.setdefault(receipt.client, receipt)
            elif receipt.kind == "probe":
                opened.probed[receipt.client] = receipt.size
        before, standing = self.publisher.snapshot, (await self.stores.evictions.barred()).standing
        known = {r.client: r for r in before.pool if buffered} | opened.receipts
        receipts = {c: known[c] for c in sorted(known.keys() - standing.barred)}
        try:
            decided: RoundResult = await self.compute(
                self.round_engine.close_round,
                state.round,
                receipts,
                state.position,
                state.pulls,
                standing,
                state.selected,
                state.examined,
                await blobs_in_use(self.stores, state.position) if buffered else (),
            )
        except PreconditionError as error:
            # Drop the traceback: it keeps rows in memory, and the next call may need this memory.
            error.with_traceback(None)
            await self.compute(self.round_engine.restore, before)
            return events.RoundRefused(error.detail)
        opened.closed = ClosedRound(before, receipts, decided, standing.reinstated)
        return events.RoundDecided()

    # -- the end of the run --------------------------------------------------------------------

    async def open_evaluation(self, command: commands.OpenEvaluation) -> None:
        """Issues tickets that ask all members who are not evicted to evaluate the final models."""
        barred = await self.stores.evictions.barred()
        clients = sorted(barred.members - barred.out)
        number, deadline, ticket = command.number, command.deadline, self.ticket_issuer.last_ticket
        tickets = {client: ticket(client, number, deadline) for client in clients}
        await self.stores.rounds.open(
            self.fence, number, "evaluating", command.opened_at, deadline, tickets, sorted(tickets)
        )

    async def finish(self) -> None:
        """Ends the run, and moves the entries of its rounds from Redis to blobs."""
        segment = await self.records.seal_rest()
        await self.stores.state.end(self.fence, self.clock.now(), segment=segment)

    async def summary(self) -> RunSummary:
        """The run's state without the large fields."""
        summary = await self.stores.state.summary()
        assert summary is not None
        return summary
