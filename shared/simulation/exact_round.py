"""The computations of one round, exactly as in the paper on fine-tuned personalization.

Every client computes one gradient at each client's model θ_i. The server aggregates the gradients
at each model θ_i separately.

Legend: N clients, P models, D parameters.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rampart_fl.shared.learning.training.local import CohortResult
from rampart_fl.shared.learning.training.personalizers import Batch
from rampart_fl.shared.learning.training.task import mean_loss_gradients
from rampart_fl.shared.robust.base import Rows, State
from rampart_fl.shared.round.pool import Claim
from rampart_fl.shared.simulation.clients import SimulatedClients
from rampart_fl.shared.simulation.server import SimulatedServer

ELEMENTS = 1 << 24
"""Largest total number of elements in the gradients and batches of one pass."""


@dataclass(frozen=True, eq=False)
class ExactRound:
    """What clients and server compute in a round; results are returned, and no state is changed.

    Args:
        clients, server: the two sides of the federation.
        round: the number of the round.
    """

    clients: SimulatedClients
    server: SimulatedServer
    round: int

    @property
    def rate(self) -> float:
        """Step size η of the round."""
        learner = self.clients.learner
        share = learner.schedule.checked_share(self.round, learner.rounds)
        return learner.training.learning_rate * share

    def step(
        self, model_ND: Tensor, batch: Batch, states: dict[str, State]
    ) -> tuple[Tensor, dict[str, State]]:
        """The models (N, D) after a step of every honest client, and the pipeline's next states.

        The model θ_i of client i becomes θ_i + (1-λ_i) u_i + λ_i F(u_1, ..., u_N). All updates u in
        this formula are computed at the model θ_i, and F is the server's pipeline.
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
        """Yields each p of `places` with all clients' updates (N, D), computed at model p."""
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
        """Aggregates the rows for one model; returns F (D,) and the pipeline's next state."""
        rounds = self.server.rounds
        context = rounds.context(self.round, model_D, self.server.standing)
        context = rounds.resources.attach_to(context)
        aggregate_D, state, _ = rounds.plan.pipeline.apply(rows, state, context)
        return aggregate_D, state
