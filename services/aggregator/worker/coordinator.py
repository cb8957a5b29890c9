"""The phases of a federation, which the worker that holds the lease runs.

    joining ──> collecting ──> aggregating ──> published | failed ──┬──> collecting (next round)
                                                                    └──> evaluating ──> done

Every arrow is one atomic Redis script, which only runs if the worker's fencing token is current. A
worker may die at any point: the next worker reads the same events from the last published position
on, and arrives at the same digests.
"""

import logging
import time
from collections.abc import Callable, Mapping

from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.aggregator.state.redis_records import Brief, Event, Federation
from rampart_fl.services.aggregator.state.snapshot import Snapshot
from rampart_fl.services.aggregator.state.stores import Stores
from rampart_fl.services.aggregator.worker.liveness import Liveness
from rampart_fl.services.aggregator.worker.open_round import (
    OpenRound,
    failed,
    published,
    why_barred,
)
from rampart_fl.services.aggregator.worker.round_engine import Decided, RoundEngine
from rampart_fl.services.aggregator.worker.ticket_issuer import Compute, TicketIssuer
from rampart_fl.shared.errors import PreconditionError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.selection import quota, select
from rampart_fl.shared.protocol.messages import Receipt, RoundRecord

log = logging.getLogger(__name__)


class Coordinator:
    """Runs the phases under one lease.

    Args:
        stores, blobs: the federation's state.
        round_engine: computes on models and updates.
        compute: runs a function on the round engine's thread.
        experiment: the experiment that is run.
        fence: the lease's fencing token.
        offline_after: seconds without a request after which a client is not drawn.
        clock: gives the Unix time.
    """

    def __init__(
        self,
        stores: Stores,
        blobs: Blobs,
        round_engine: RoundEngine,
        compute: Compute,
        experiment: Experiment,
        fence: int,
        offline_after: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.stores = stores
        self.blobs = blobs
        self.round_engine = round_engine
        self.compute = compute
        self.experiment = experiment
        self.fence = fence
        self.clock = clock
        self.liveness = Liveness(stores.clients, stores.evictions, offline_after, clock)
        self.ticket_issuer = TicketIssuer(stores, round_engine, compute, experiment, fence)
        self.position = "0-0"
        self.open: OpenRound | None = None
        self.observers: list[Callable[[RoundRecord, Decided | None], None]] = []
        self.warnings: list[str] = []

    @property
    def buffered(self) -> bool:
        """Whether a round closes after enough arrivals, without waiting for every client."""
        return self.experiment.policy == "buffered"

    @property
    def snapshot(self) -> Snapshot:
        """The last published state."""
        assert self.round_engine.snapshot is not None
        return self.round_engine.snapshot

    # -- the main flow -------------------------------------------------------------------------

    async def run(self) -> None:
        """Resumes the federation in its current phase and runs it to its end."""
        federation = await self.federation()
        await self.compute(self.round_engine.restore, federation.snapshot)
        self.position = self.snapshot.position
        while federation.phase != "done":
            match federation.phase:
                case "joining":
                    await self.join()
                case "collecting":
                    await self.collect(federation)
                case "aggregating":
                    await self.aggregate(federation)
                case "evaluating":
                    await self.evaluate()
                case _:
                    await self.next_round(federation)
            federation = await self.federation()
        log.info("the federation has ended", extra={"round": federation.round})
        while True:  # Newcomers may still ask for a customized model.
            for event in await self.events(5.0):
                await self.ticket_issuer.serve(event)
            await self.stores.events.trim()

    async def join(self) -> None:
        """Waits until enough clients have joined, then opens round 0.

        After the deadline, one client is enough.
        """
        wanted = self.experiment.phases.joining.clients or self.experiment.data.clients
        heard, brief = self.position, await self.brief()
        while brief.status != "stopping":
            joined = len(await self.stores.clients.records())
            late = brief.deadline is not None and self.clock() >= brief.deadline
            if brief.status == "running" and joined >= (1 if late else wanted):
                log.info("joining has ended", extra={"clients": joined, "wanted": wanted})
                await self.open_round(0)
                return
            heard, brief = await self.pass_time(heard), await self.brief()
        await self.open_evaluation(0)

    async def next_round(self, brief: Brief) -> None:
        """Waits while the federation is paused, then opens the next round or the evaluation."""
        heard = self.position
        while brief.status == "paused":
            heard, brief = await self.pass_time(heard), await self.brief()
        following = brief.round + 1
        if brief.status == "stopping" or following >= self.experiment.rounds:
            await self.open_evaluation(brief.round)
        else:
            await self.open_round(following)

    async def open_round(self, number: int) -> None:
        """Draws the clients of a round and gives them their tickets."""
        heard, candidates = self.position, await self.liveness.candidates(number)
        while not candidates and not await self.liveness.all_quarantined(number):
            if (await self.brief()).status != "running":
                return
            heard, candidates = await self.pass_time(heard), await self.liveness.candidates(number)
        now = self.clock()
        limit = self.experiment.phases.collecting.time.max
        deadline = None if limit is None else now + limit
        if self.buffered:
            selected = tuple(candidates)
            # Every client that asked for a ticket gets it, even if the client is offline now:
            # a repeated request would be ignored.
            first = candidates if number == 0 else self.snapshot.pulls
            tickets = {c: self.ticket_issuer.first_ticket(c, number, None) for c in first}
        else:
            selected = select(self.experiment.seed, number, candidates, self.experiment.fraction)
            tickets = {c: self.ticket_issuer.first_ticket(c, number, deadline) for c in selected}
        await self.stores.rounds.open(
            self.fence,
            number,
            "collecting",
            now,
            deadline,
            tickets,
            selected,
            clear=not self.buffered,
        )
        log.info("round opened", extra={"round": number, "clients": len(selected)})

    async def collect(self, federation: Federation) -> None:
        """Takes in updates and probes until the round may close, then decides the round."""
        await self.enter(federation)
        opened = self.open
        assert opened is not None
        bounds = self.experiment.phases.collecting
        brief, barred, expected = await self.read_expected(opened)
        while True:
            if opened.stale:
                brief, barred, expected = await self.read_expected(opened)
            if brief.status == "stopping":
                await self.fail(brief, "stopped by the operator")
                return
            if not expected:
                barring = "of this round was evicted" if opened.selected else "is quarantined"
                await self.fail(brief, f"every client {barring}")
                return
            now, enough = self.clock(), self.quota(len(expected))
            arrived = len(opened.receipts.keys() - barred)
            soonest = brief.opened_at + bounds.time.min
            if arrived >= enough and now >= soonest:
                break
            if brief.deadline is not None and now >= brief.deadline:
                least = 1 if self.buffered else max(1, bounds.count.least(len(expected)))
                if arrived >= least:
                    break
                await self.fail(
                    brief, f"{arrived} of {len(expected)} updates came, {least} are needed"
                )
                return
            moments = [now + 1.0, brief.deadline, soonest if soonest > now else None]
            until = min(moment for moment in moments if moment is not None)
            await self.take(max(0.01, until - now), enough)
        await self.stores.rounds.close(self.fence, opened.number, self.position)
        await self.aggregate(await self.federation())

    async def read_expected(self, opened: OpenRound) -> tuple[Brief, frozenset[str], set[str]]:
        """The federation's small fields, the barred clients, and those still expected to send."""
        # Cleared before the reads: a change during them comes as an event, which sets it again.
        opened.stale = False
        brief, barred = await self.brief(), (await self.stores.evictions.barred()).standing.barred
        out = barred | (opened.evicted - opened.receipts.keys())
        return brief, barred, opened.selected - out

    def quota(self, expected: int) -> int:
        """How many arrivals close the round without waiting for the deadline."""
        if not self.buffered:
            return max(1, self.experiment.phases.collecting.count.most(expected))
        return quota(self.experiment.buffer, expected)

    async def enter(self, federation: Federation) -> None:
        """Prepares this worker for the open round, unless it is prepared already."""
        if self.open is not None and self.open.number == federation.round:
            return
        self.open = OpenRound(federation.round, set(federation.selected))
        self.position = self.snapshot.position
        await self.compute(self.round_engine.open_round, federation.selected)

    async def take(self, patience: float, quota: int, until: str | None = None) -> None:
        """Handles the next events.

        Args:
            patience: seconds to wait for the first event.
            quota: number of arrivals after which no further event is handled (buffered policy).
            until: position of an event after which no further event is handled.
        """
        opened, arrived = self.open, list[Receipt]()
        assert opened is not None
        for event in await self.events(patience, advance=False):
            self.position = event.position
            if event.type == "update" and (self.buffered or event.round == opened.number):
                if event.client not in opened.receipts:
                    opened.receipts[event.client] = event.receipt
                    arrived.append(event.receipt)
            else:
                await self.ticket_issuer.handle(event, opened)
            if event.position == until or (self.buffered and len(opened.receipts) >= quota):
                break
        if arrived:
            started = time.perf_counter()
            await self.compute(self.round_engine.load, arrived)
            opened.loading += time.perf_counter() - started

    # -- the end of a round --------------------------------------------------------------------

    async def aggregate(self, federation: Federation) -> None:
        """Decides a closed round and publishes the outcome."""
        await self.enter(federation)
        opened = self.open
        assert opened is not None
        if self.buffered:
            while self.position != federation.closing:
                await self.take(1.0, len(opened.selected) + 1, until=federation.closing)
        else:
            # Count the updates that were accepted after the last read of the events, but before
            # the round was closed.
            for receipt in await self.stores.uploads.receipts(opened.number):
                opened.uploads.add(receipt.digest)
                if receipt.kind == "update":
                    opened.receipts.setdefault(receipt.client, receipt)
                elif receipt.kind == "probe":
                    opened.probed[receipt.client] = receipt.size
            while self.position != await self.stores.events.last_position():
                for event in await self.events(0.001):
                    await self.ticket_issuer.serve(event)
        standing = (await self.stores.evictions.barred()).standing
        receipts = {r.client: r for r in self.snapshot.pool if self.buffered}
        receipts.update(opened.receipts)
        receipts = {c: receipts[c] for c in sorted(receipts) if c not in standing.barred}
        try:
            decided: Decided = await self.compute(
                self.round_engine.close_round,
                opened.number,
                receipts,
                self.position,
                tuple(opened.waiting),
                standing,
            )
        except PreconditionError as error:
            await self.compute(self.round_engine.restore, federation.snapshot)
            await self.fail(federation, error.detail)
            return
        await self.publish(federation, opened, receipts, decided)

    async def publish(
        self,
        federation: Federation,
        opened: OpenRound,
        receipts: Mapping[str, Receipt],
        decided: Decided,
    ) -> None:
        """Publishes the outcome, then deletes the blobs that nothing refers to any more."""
        before = federation.snapshot
        now = self.clock()
        record = published(self.experiment, federation, opened, receipts, before, decided, now)
        record = record.model_copy(update={"warnings": self.warnings})
        evicted, away = why_barred(self.experiment, decided, opened.number, now)
        abstained = decided.about("abstained")
        await self.stores.rounds.publish(
            self.fence, record, evicted, decided.snapshot, self.position, away, list(abstained)
        )
        self.open = None
        self.observe(record, decided)
        used = {d for r in opened.receipts.values() for d in (r.digest, r.started) if d}
        await self.drop(before.blobs() | used | opened.uploads)

    async def fail(self, federation: Brief, reason: str) -> None:
        """Ends a round without an outcome; the models and the pool stay unchanged."""
        opened = self.open
        assert opened is not None
        record = failed(self.experiment, federation, opened, reason, self.clock())
        record = record.model_copy(update={"warnings": self.warnings})
        snapshot = self.snapshot.model_copy(
            update={"position": self.position, "pulls": tuple(opened.waiting)}
        )
        await self.stores.rounds.publish(self.fence, record, {}, snapshot, self.position)
        self.round_engine.snapshot = snapshot
        self.open = None
        log.warning("round failed: %s", reason, extra={"round": federation.round})
        self.observe(record, None)
        await self.drop({r.digest for r in opened.receipts.values()} | opened.uploads)

    async def drop(self, digests: set[str]) -> None:
        """Deletes the given blobs, except those that something still refers to."""
        # Tickets are read before events: if a ticket is used up between the two reads, the event
        # of its upload shows up in the second read.
        kept = {
            d for t in (await self.stores.tickets.outstanding()).values() for d in t.models.values()
        }
        position = self.position
        while waiting := await self.stores.events.read(position, 0):
            position = waiting[-1].position
            receipts = [event.receipt for event in waiting if "receipt" in event.fields]
            kept |= {d for r in receipts for d in (r.digest, r.started) if d}
        await self.compute(self.blobs.delete, sorted(digests - kept - self.snapshot.blobs()))

    def observe(self, record: RoundRecord, decided: Decided | None) -> None:
        """Reports a finished round to the observers, such as the metrics."""
        for observer in self.observers:
            observer(record, decided)

    # -- the end of the federation -------------------------------------------------------------

    async def open_evaluation(self, number: int) -> None:
        """Gives every client that is not evicted a last ticket, to measure the final models."""
        now = self.clock()
        limit = self.experiment.phases.collecting.time.max or 600.0
        evicted = await self.stores.evictions.evicted()
        clients = [c for c in await self.stores.clients.records() if c not in evicted]
        tickets = {c: self.ticket_issuer.last_ticket(c, number, now + limit) for c in clients}
        await self.stores.rounds.open(
            self.fence, number, "evaluating", now, now + limit, tickets, sorted(tickets)
        )

    async def evaluate(self) -> None:
        """Waits until every online client has measured the final models, or for the deadline."""
        while True:
            now = self.clock()
            brief = await self.brief()
            online = await self.liveness.online()
            waiting = [c for c in await self.stores.tickets.outstanding() if c in online]
            if not waiting or (brief.deadline is not None and now >= brief.deadline):
                break
            for event in await self.events(1.0):
                await self.ticket_issuer.serve(event)
        await self.stores.run.finish(self.fence)

    # -- events and state ----------------------------------------------------------------------

    async def pass_time(self, heard: str) -> str:
        """Waits for events after the position `heard`; returns the position of the last one.

        Answers only requests for customized models. The next round reads these events again and
        handles the others.
        """
        for event in await self.stores.events.read(heard, 1.0):
            heard = event.position
            await self.ticket_issuer.serve(event)
        return heard

    async def events(self, patience: float, advance: bool = True) -> list[Event]:
        """The next events, waiting up to `patience` seconds for the first."""
        events = await self.stores.events.read(self.position, patience)
        if advance and events:
            self.position = events[-1].position
        return events

    async def federation(self) -> Federation:
        """The federation's current state."""
        federation = await self.stores.run.read()
        assert federation is not None
        return federation

    async def brief(self) -> Brief:
        """The federation's small fields."""
        brief = await self.stores.run.brief()
        assert brief is not None
        return brief
