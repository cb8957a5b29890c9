"""Issues tickets, and answers requests for customized models outside of a round."""

import logging
from collections.abc import Mapping

from rampart_fl.services.aggregator.state.redis_records import Event, RunSummary
from rampart_fl.services.aggregator.worker.open_round import OpenRoundData
from rampart_fl.services.aggregator.worker.run_resources import RunResources
from rampart_fl.shared.protocol.messages import Receipt, Ticket, TicketKind

log = logging.getLogger(__name__)


class TicketIssuer:
    """Issues tickets and customized models under one lease.

    Args:
        resources: the run. The run's round engine makes customized models, and the engine's
            snapshot determines which models clients get.
    """

    def __init__(self, resources: RunResources) -> None:
        self._stores = resources.stores
        self._blobs = resources.blobs
        self._round_engine = resources.round_engine
        self._compute = resources.compute
        self._digest = resources.experiment.digest()
        self._buffered = resources.experiment.policy == "buffered"
        self._fence = resources.fence

    # -- tickets -------------------------------------------------------------------------------

    def first_ticket(self, client: str, number: int, deadline: float | None) -> Ticket:
        """A client's first ticket of a round.

        The ticket names the model from which the client trains. If the experiment probes newcomers,
        the first ticket of a client without a customized model asks for a probe.
        """
        snapshot = self._round_engine.snapshot
        assert snapshot is not None
        rounds, customized = self._round_engine.rounds, bool(snapshot.customized)
        if rounds.to_probe([client], customized, snapshot.has_own_model):
            return self._ticket(number, "probe", {"model": snapshot.reference}, deadline)
        return self._ticket(number, "train", snapshot.ticket_models(client), deadline)

    def last_ticket(self, client: str, number: int, deadline: float) -> Ticket:
        """The ticket that asks a client to evaluate the final models."""
        snapshot = self._round_engine.snapshot
        assert snapshot is not None
        return self._ticket(number, "evaluate", snapshot.ticket_models(client, True), deadline)

    def _ticket(
        self,
        number: int,
        kind: TicketKind,
        models: Mapping[str, str],
        deadline: float | None = None,
    ) -> Ticket:
        return Ticket(
            run=self._stores.run,
            round=number,
            kind=kind,
            models=dict(models),
            deadline=deadline,
            experiment=self._digest,
        )

    # -- answers -------------------------------------------------------------------------------

    async def answer_probe(self, event: Event, number: int, opened: OpenRoundData) -> None:
        """Makes a model for a client that answered a probe; issues a ticket to train this model."""
        await self._answer_probe(event.receipt, number, opened)

    async def _answer_probe(self, probe: Receipt, number: int, opened: OpenRoundData) -> None:
        opened.probed[probe.client] = probe.size
        if await self._stores.uploads.receipt(probe.round, "update", probe.client):
            return
        answer = None if probe.diverged else probe.digest
        customize = self._round_engine.customize_newcomer
        digest = await self._compute(customize, probe.client, answer, number)
        opened.uploads |= {probe.digest, digest}
        await self._grant(probe.client, self._ticket(probe.round, "train", {"model": digest}))

    async def grant(self, client: str, number: int, opened: OpenRoundData) -> None:
        """Issues a client's next ticket in the open round."""
        ticket, probe = self.first_ticket(client, number, None), None
        if ticket.kind == "probe":
            probe = await self._stores.uploads.receipt(number, "probe", client)
        if probe is None:
            await self._grant(client, ticket)
        else:
            # An eviction took the client's ticket to train, and a reinstatement followed.
            await self._answer_probe(probe, number, opened)

    async def answer_customize(self, event: Event) -> None:
        """Answers a request for a customized model; the request can arrive in any phase.

        Ignores events of other types, requests that were already answered, and old requests whose
        probe has been deleted.
        """
        if event.type != "customize":
            return
        customizations, request = self._stores.customizations, event.request
        if await customizations.result(request):
            return
        # Check first, because every rank of the worker ends if the computation cannot read the
        # probe.
        if not await self._compute(self._blobs.exists, event.digest):
            log.warning("old request ignored: its probe was deleted", extra={"request": request})
            return
        number, customize = (await self._summary()).round, self._round_engine.customize_newcomer
        try:
            digest = await self._compute(customize, event.client, event.digest, number)
        except FileNotFoundError:  # A sweep has deleted the probe since the check.
            return
        await customizations.answer(self._fence, request, digest)

    async def _grant(self, client: str, ticket: Ticket) -> None:
        """Issues a ticket in the open round, with the round's deadline."""
        deadline = None if self._buffered else (await self._summary()).deadline
        await self._stores.tickets.grant(
            self._fence, client, ticket.model_copy(update={"deadline": deadline})
        )

    async def _summary(self) -> RunSummary:
        summary = await self._stores.state.summary()
        assert summary is not None
        return summary
