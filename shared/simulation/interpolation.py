"""Fine-tuned personalization exactly as in the paper, which is possible only in simulation.

Every client computes its gradient at every client's model. There is no common model: the server
aggregates once for each client's θ_i. The federation's global model therefore stays the initial
model, and all metrics measure the personalized models.

Legend: N clients, P models, D parameters.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rampart_fl.shared.errors import PreconditionError
from rampart_fl.shared.learning.training.cohort import Batches, Cohort
from rampart_fl.shared.learning.training.local import CohortResult, evaluate_many
from rampart_fl.shared.learning.training.personalizers import Batch
from rampart_fl.shared.learning.training.task import mean_loss_gradients
from rampart_fl.shared.protocol.messages import RoundRecord
from rampart_fl.shared.robust.base import Rows, State
from rampart_fl.shared.robust.pipeline import join_states, split_state
from rampart_fl.shared.round.pool import Claim
from rampart_fl.shared.simulation.clients import Clients
from rampart_fl.shared.simulation.collaboration import estimate
from rampart_fl.shared.simulation.mean_optimum import bound, optimum
from rampart_fl.shared.simulation.server import Server

ELEMENTS = 1 << 24
"""Largest total number of elements of the gradients that one pass computes."""


@dataclass(frozen=True, eq=False)
class ExactRound:
    """One round of all clients, with as many steps as the client with the most batches needs.

    Args:
        clients, server: both sides; running the round updates their state.
        round: the number of the round.
    """

    clients: Clients
    server: Server
    round: int

    @property
    def rate(self) -> float:
        """Step size η of the round."""
        learner = self.clients.learner
        return learner.training.learning_rate * learner.schedule.share(self.round, learner.rounds)

    def run(self) -> RoundRecord:
        """Runs the round; returns its record with the honest clients' measurements."""
        clients, names = self.clients, self.clients.names
        cohort = clients.cohort(self.round)
        training, seed = clients.learner.training, clients.experiment.seed
        batches = Batches.draw(cohort.train_K, names, training, seed, self.round)
        model_ND = clients.personal["model"]
        known = split_state(self.server.state)
        first = self.server.rounds.plan.pipeline.init(model_ND.shape[1])
        states = {name: known.get(name, first) for name in names}
        try:
            if bool(clients.personal["lambda"].isnan().any()):
                clients.personal["lambda"] = self._shares(cohort)
            for step in range(batches.steps):
                batch = _batch(cohort, batches, step, model_ND)
                model_ND, states = self._step(model_ND, batch, states)
        except PreconditionError as error:
            return RoundRecord(
                round=self.round, status="failed", reason=error.detail, participants=names
            )
        clients.personal["model"] = model_ND
        self.server.state = join_states(states)
        return RoundRecord(
            round=self.round,
            status="published",
            participants=names,
            metrics=self._measure(cohort),
        )

    def _shares(self, cohort: Cohort) -> Tensor:
        """λ (N,) by the paper's formula for the task."""
        clients, share_N = self.clients, self.clients.personal["lambda"]
        f = clients.experiment.server.f or 0
        if clients.learner.scoring.counted == "correct":
            return estimate(self).shares(f)
        own = [cohort.x_train_KN[i, : cohort.train_K[i]].flatten(1) for i in clients.honest]
        kappa = bound(self.server.rounds.plan.pipeline, len(clients.names), f)
        return torch.full_like(share_N, optimum(own, kappa))

    def _step(
        self, model_ND: Tensor, batch: Batch, states: dict[str, State]
    ) -> tuple[Tensor, dict[str, State]]:
        """θ_i <- θ_i + (1-λ_i) u_i + λ_i F(u_1, ..., u_N) for every honest client i.

        All updates u in this formula are computed at the model θ_i.
        """
        names, share_N = self.clients.names, self.clients.personal["lambda"]
        after_ND, after = model_ND.clone(), dict(states)
        places = self._places(model_ND, states)
        for first, update_ND in self.movements(model_ND, list(places), batch):
            rows = self.arrive(update_ND, model_ND[first])
            aggregate_D, state = self.aggregate(rows, model_ND[first], states[names[first]])
            for i in places[first]:
                after_ND[i] += torch.lerp(update_ND[i], aggregate_D, share_N[i])
                after[names[i]] = state
        return after_ND, after

    def _places(self, model_ND: Tensor, states: dict[str, State]) -> dict[int, list[int]]:
        """Groups of honest clients whose models are equal, keyed by the first client of the group.

        In round 0 all models are equal, and with λ = 1 all models stay equal. The clients of a
        group share one computation, unless the pipeline keeps a separate state for each client.
        """
        honest = self.clients.honest
        if any(state.tensors for state in states.values()):
            return {i: [i] for i in honest}
        places: dict[bytes, list[int]] = {}
        for i in honest:
            places.setdefault(model_ND[i].cpu().numpy().tobytes(), []).append(i)
        return {members[0]: members for members in places.values()}

    def movements(
        self, models_PD: Tensor, places: Sequence[int], batch: Batch
    ) -> Iterator[tuple[int, Tensor]]:
        """All clients' uploads (N, D) after one step from model p, for each position p."""
        learner, n = self.clients.learner, len(self.clients.names)
        size = max(1, ELEMENTS // (n * (models_PD.shape[1] + batch.x_KB[0].numel())))
        for start in range(0, len(places), size):
            some = places[start : start + size]
            at = [models_PD[i].expand(n, -1) for i in some]
            gradients = mean_loss_gradients(learner.network, learner.scoring, batch, at)
            for i, sent_ND, gradient_ND in zip(some, at, gradients, strict=True):
                decayed_ND = gradient_ND + learner.training.weight_decay * sent_ND
                yield i, -self.rate * decayed_ND

    def arrive(self, update_ND: Tensor, model_D: Tensor) -> Rows:
        """The rows that the server receives for a model, including the attackers' changed rows."""
        clients, names = self.clients, self.clients.names
        sent_ND, true = model_D.expand_as(update_ND), CohortResult(update_ND, {}, {})
        received_ND, _ = clients.updates(names, true, {}, sent_ND, model_D, self.round)
        cap = clients.experiment.server.sample_cap
        counts = clients.cohort(self.round).train_K
        weights = [Claim(samples, {}).weight(cap) for samples in counts]
        return Rows.of(received_ND, ids=names, weights=weights)

    def aggregate(self, rows: Rows, model_D: Tensor, state: State) -> tuple[Tensor, State]:
        """The aggregate F (D,) of the rows received for a model, and the pipeline's next state."""
        rounds = self.server.rounds
        context = rounds.context(self.round, model_D, self.server.standing)
        context = rounds.resources.attach_to(context)
        aggregate_D, state, _ = rounds.plan.pipeline.apply(rows, state, context)
        return aggregate_D, state

    def _measure(self, cohort: Cohort) -> dict[str, dict[str, float]]:
        """The scores of the honest clients' models, and the λ of each client."""
        clients, learner = self.clients, self.clients.learner
        picked, personal = cohort.pick(clients.honest), clients.personal
        own = {key: tensor[clients.honest] for key, tensor in personal.items()}
        evaluated = evaluate_many(learner, picked, own["model"], own)
        kept = {key: column for key, column in evaluated.items() if not key.endswith("customized")}
        columns = {key: column.tolist() for key, column in kept.items()}
        columns["lambda"] = own["lambda"].tolist()
        names = [clients.names[i] for i in clients.honest]
        return {
            name: {key: column[k] for key, column in columns.items()}
            for k, name in enumerate(names)
        }


def _batch(cohort: Cohort, batches: Batches, step: int, like: Tensor) -> Batch:
    """Every client's mini-batch; a client that has used up its batches starts over."""
    clients = torch.arange(len(like))
    steps = [step % own for own in batches.steps_K]
    weight_KB = batches.weight_KSB[clients, steps]
    width = int((weight_KB > 0).sum(1).max())  # Padding is at the end.
    at_KB = batches.index_KSB[clients, steps, :width].to(like.device)
    clients = clients.to(like.device)[:, None]
    return Batch(
        cohort.x_train_KN[clients, at_KB],
        cohort.y_train_KN[clients, at_KB],
        weight_KB[:, :width].to(like),
    )
