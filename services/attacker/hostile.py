"""A hostile client, which uses the same protocol as honest clients but crafts its uploads.

Legend: M colluders of the round, B honest clients, D parameters.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rampart_fl.services.attacker.cohort_client import CohortClient
from rampart_fl.shared.agent.learning_client import LearningClient
from rampart_fl.shared.attacks.base import DataAttack, Knowledge, ModelAttack
from rampart_fl.shared.built_experiment import build_plan
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.learning.data.client_data import ClientData, poisoned
from rampart_fl.shared.learning.server_resources import ServerResources
from rampart_fl.shared.learning.training.attacker_probes import initial_parameters, jacobian
from rampart_fl.shared.learning.training.local import LocalResult
from rampart_fl.shared.protocol.messages import Ticket
from rampart_fl.shared.robust.engine import Plan


class HostileClient(LearningClient):
    """Trains like an honest client, then applies its attack before the upload.

    Args:
        attack: attack on updates; None if the client has only a data attack.
        data_attack: attack on the client's own samples.
        cohort: connection to the cohort; needed if the attack uses the updates of the other
            attackers or of all clients. With any other attack, the client uses the cohort only to
            share its own updates.
        members: number of attackers.
        position: position of this client among all attackers.
        returns: whether the client rejoins with another identity after it is evicted.
        identity: arguments that are passed on to `LearningClient`.
    """

    def __init__(
        self,
        attack: ModelAttack | None,
        data_attack: DataAttack | None,
        cohort: CohortClient | None,
        members: int,
        position: int,
        returns: bool = False,
        **identity: Any,
    ) -> None:
        super().__init__(**identity)
        self.learner = self.learner.as_attacker()
        self._usual = self.learner.training
        self.attack = attack
        self.data_attack = data_attack
        self.cohort = cohort
        self.members = members
        self.position = position
        self.returns = returns
        self._server: tuple[Plan, ServerResources] | None = None
        self._poisoned = self.data
        if data_attack is not None:
            seed = self.experiment.seed
            self._poisoned = poisoned(self.data, data_attack, seed, self.client, position)

    @property
    def _colludes(self) -> bool:
        return self.attack is not None and self.attack.asks_for != "agnostic"

    def _poisons(self, round_: int) -> bool:
        return self.data_attack is not None and self.data_attack.active(
            round_, self.experiment.seed
        )

    def samples(self, round_: int) -> ClientData:
        return self._poisoned if self._poisons(round_) else self.data

    async def work(self, ticket: Ticket, model: bytes) -> bytes:
        training = self._usual
        if self.data_attack is not None and self._poisons(ticket.round):
            training = self.data_attack.checked_training(training)
        self.learner = self.learner.trained_as(training)
        # Keep the received model for `finish`, which gets only the result of training.
        self._sent_D = self._model(model)
        return await super().work(ticket, model)

    async def finish(self, ticket: Ticket, result: LocalResult) -> tuple[Tensor, dict[str, float]]:
        own_D, metrics = await super().finish(ticket, result)
        honest_D = own_D
        if self.data_attack is not None and self._poisons(ticket.round):
            own_D = self.data_attack.checked_upload(own_D.unsqueeze(0))[0]
        if self.cohort is not None and not self._colludes:
            # Share the update, because colluders wait for the updates of all attackers and use
            # these updates.
            sent_D = self._sent_D.numpy()
            await self.cohort.share(ticket.round, ticket.kind, honest_D.numpy(), sent_D)
        if self.attack is None:
            return own_D, metrics
        knowledge = await self._knowledge(self.attack, ticket, honest_D)
        crafted_FD = await self.compute(self.attack.apply, own_D.unsqueeze(0), knowledge)
        return crafted_FD[0], self.attack.report(metrics, knowledge)

    async def _knowledge(self, attack: ModelAttack, ticket: Ticket, own_D: Tensor) -> Knowledge:
        experiment, wait = self.experiment, self.experiment.policy == "sync"
        everyone, seed = experiment.client_names, experiment.seed
        colluders_MD, sent_MD = own_D.unsqueeze(0), self._sent_D.unsqueeze(0)
        first, attackers, gone = self.position, self.members, 0
        if self._colludes and self.cohort is not None:
            shared = await self.cohort.exchange(
                ticket.round, ticket.kind, own_D.numpy(), self._sent_D.numpy(), wait
            )
            colluders_MD, sent_MD = (_rows(part) for part in zip(*shared.values(), strict=True))
            first = list(shared).index(self.client)
            gone = self.cohort.gone
            # After a wait, `shared` has all selected attackers. Without a wait, some may be
            # missing.
            attackers = len(shared) if wait else max(len(shared), self.members - gone)
        # Exclude only attackers that have left the run: attackers do not learn which honest clients
        # are barred.
        drawn = len(experiment.draw(ticket.round, everyone[gone:]))
        known = Knowledge(
            participants=drawn,
            attackers=min(drawn, attackers),
            honest_BD=colluders_MD,
            honest_sent_BD=sent_MD,
            round=ticket.round,
            seed=seed,
            level="partial",
            colluders_MD=colluders_MD,
            colluders_sent_MD=sent_MD,
            first=first,
            sent_FD=self._sent_D.unsqueeze(0),
            initial=initial_parameters(experiment),
            jacobian=jacobian(self.learner, self.data),
        )
        if attack.asks_for == "full":
            known = await self._full_knowledge(known, ticket, wait)
        return known.limited_to(attack.asks_for)

    async def _full_knowledge(self, known: Knowledge, ticket: Ticket, wait: bool) -> Knowledge:
        assert self.cohort is not None
        honest = await self.cohort.honest(ticket.round, ticket.kind, wait)
        reference_D = torch.from_numpy(honest.reference_D)
        experiment = self.experiment.model_copy(update={"server": honest.server})
        plan, own_D = await self.compute(self._imitate, experiment, reference_D, ticket.round)
        known = replace(
            known, reference_D=reference_D, plan=plan, server_update_D=own_D, level="full"
        )
        assert known.colluders_MD is not None
        met = len(known.colluders_MD)
        if wait:  # Without a wait, further clients may still upload in the round.
            known = replace(known, participants=len(honest.updates) + met, attackers=met)
        if not honest.updates:
            # No honest client got a ticket of this kind, for example because the server probes only
            # attackers.
            return known
        return replace(
            known,
            honest_BD=_rows(honest.updates.values()),
            honest_sent_BD=_rows(honest.started.values()),
        )

    def _imitate(
        self, experiment: Experiment, reference_D: Tensor, round_: int
    ) -> tuple[Plan, Tensor | None]:
        """Returns the server's plan, and the server's own update (D,) if a stage needs this update.

        The table `server` of `experiment` must come from the test tap, because the aggregator does
        not send this table to clients.
        """
        if self._server is None:
            plan = build_plan(experiment)
            self._server = plan, ServerResources.of(experiment, plan)
        plan, resources = self._server
        return plan, resources.update(reference_D, round_)

    async def idle(self, ticket: Ticket) -> None:
        if self.cohort is None:
            return
        if ticket.kind == "wait":
            if not self._may_come(ticket.round):
                await self.cohort.report_absence(ticket.round)
            return
        if not (ticket.kind == "evicted" and self.returns):
            await self.cohort.leave()
        await self.cohort.close()  # This was the last ticket of the run.

    def _may_come(self, round_: int) -> bool:
        """Whether this client may still be selected for the round in which it got a `wait` ticket.

        In the first round, clients get a `wait` ticket before the selection, so a waiting client
        may still be selected. In later rounds, a `wait` ticket means that the client is not
        selected.
        """
        known = self.experiment.client_names
        if round_ > 0:
            return False
        return self.client not in known or self.client in self.experiment.draw(round_, known)


def _rows(vectors: Iterable[NDArray[np.float32]]) -> Tensor:
    return torch.from_numpy(np.stack(list(vectors)))
