"""FedFomo: offers each client random models, and the models that lowered the client's loss most.

Legend: N known clients, M rows of the round, P places in an offer. In the formulas of `FedFomo`, M
is the number of models in an offer.
"""

from collections.abc import Mapping, Sequence

import torch
from pydantic import Field
from torch import Tensor

from rampart_fl.shared.assignment import GLOBAL
from rampart_fl.shared.robust.base import Context, Rows, State
from rampart_fl.shared.robust.customizers import Customization, Customizer, customizers
from rampart_fl.shared.robust.models import ClientModels
from rampart_fl.shared.seeding import generator


@customizers.register("fedfomo")
class FedFomo(Customizer):
    """Offers each client the models that lowered the client's loss most.

    For each client i and each other client's model n, the server keeps an affinity A_in. It offers
    client i M models: random models, or the models with the largest affinities. When client i
    reports the weight w_n for model n, w_n is added to A_in.

    The affinities A start at 0. The client's personalizer reports a raw weight w_n for each model
    in the client's previous offer. Raw weights are clipped to [0, bound], and NaN is set to 0. A
    report changes only the reporting client's row of A, so a client that lies harms only itself.
    The server fills the M places of an offer one by one. In round t, each place goes to a random
    client's model with probability ε_t = max(0, ε - t·decay). Otherwise, it goes to the model with
    the largest A_in. A model gets at most one place. Ties are broken at random. Every client trains
    its own model and uploads the difference from the global model. In a client's first round, its
    own model is the first global model of the run, even if the client joins later.

    The state holds a number for each pair of N clients. These are the clients that have ever sent
    an accepted row and are not evicted. If an operator reinstates an evicted client, its affinities
    start at 0 again.
    """

    paper = (
        "Zhang et al., Personalized federated learning with first order model optimization, 2021"
    )
    complexity = (
        "O(nd + N² + N n log n) for N clients known so far, keeps N² affinities, sends M models to "
        "each client"
    )
    passes = "1, while models are written"
    peers: int = Field(default=5, ge=1, le=32)
    """M, the number of models that each client is offered."""
    epsilon: float = Field(default=0.3, ge=0, le=1)
    """ε, the share of places in the first round's offers that go to models of random clients."""
    decay: float = Field(default=0.05, ge=0)
    """How much ε decreases from each round to the next."""
    bound: float = Field(default=100.0, gt=0)
    """Upper limit on raw weights: a raw weight above the limit is replaced by the limit."""

    @property
    def claims(self) -> tuple[str, ...]:
        return tuple(f"weight_{place:02d}" for place in range(self.peers))

    @property
    def recovers(self) -> bool:
        return True

    @property
    def offered(self) -> int:
        return self.peers

    def apply(
        self, rows: Rows, similar: Rows, state: State, context: Context
    ) -> tuple[Customization, State]:
        assert context.reference_D is not None
        evicted = frozenset() if context.standing is None else context.standing.evicted
        known = sorted({*state.ids.get("affinity", ())} - evicted | {*rows.ids})
        place = {client: n for n, client in enumerate(known)}
        affinity_NN = self._learn(rows, state, place)
        at_M = [place[client] for client in rows.ids]
        affinity_NM = affinity_NN[:, at_M]
        offered_NP = torch.full((len(known), self.peers), -1, dtype=torch.long)
        assignment = {}
        for n, client in enumerate(known):
            chosen = self._choose(client, rows.ids, affinity_NM[n].tolist(), context)
            offered_NP[n, : len(chosen)] = torch.tensor([at_M[m] for m in chosen])
            assignment[client] = (GLOBAL, *(rows.ids[m] for m in chosen))
        used = sorted({one for names in assignment.values() for one in names[1:]})
        kept = rows.keep([rows.ids.index(one) for one in used])
        models = ClientModels(tuple(used), context.reference_D, kept) if used else None
        tensors = {"affinity": affinity_NN, "offered": offered_NP}
        following = State(tensors, dict.fromkeys(tensors, tuple(known)))
        return Customization(models, assignment), following

    def _learn(self, rows: Rows, state: State, place: Mapping[str, int]) -> Tensor:
        """The affinities (N, N) of all known clients after this round's reports.

        Args:
            rows: the rows of the round, with the reports.
            state: the state before the round, which may have rows of evicted clients.
            place: the position of each known client.
        """
        before = state.ids.get("affinity", ())
        affinity_NN = torch.zeros(len(place), len(place), dtype=torch.float64)
        if not len(before):
            return affinity_NN
        kept = torch.tensor([n for n, one in enumerate(before) if one in place], dtype=torch.long)
        at = torch.tensor([place[one] for one in before if one in place], dtype=torch.long)
        affinity_NN[at[:, None], at] = state.tensors["affinity"].cpu()[kept[:, None], kept]
        offers = dict(zip(before, state.tensors["offered"].tolist(), strict=True))
        nothing_M = torch.zeros(len(rows), dtype=torch.float64)
        claims_PM = torch.stack([rows.metadata.get(claim, nothing_M) for claim in self.claims])
        believed_PM = claims_PM.nan_to_num(0.0, self.bound, 0.0).clamp(0, self.bound)
        for client, reports in zip(rows.ids, believed_PM.T.tolist(), strict=True):
            for report, other in zip(reports, offers.get(client, ()), strict=False):
                if other >= 0 and before[other] in place:
                    affinity_NN[place[client], place[before[other]]] += report
        return affinity_NN

    def _choose(
        self, client: str, ids: Sequence[str], affinity_M: Sequence[float], context: Context
    ) -> list[int]:
        """The rows of up to P clients whose models are offered to `client`."""
        draws = generator(context.seed, "robust", "offer", context.round, client)
        others = [m for m, one in enumerate(ids) if one != client]
        # Sorting is stable, so shuffling beforehand breaks ties at random.
        shuffled = [others[n] for n in torch.randperm(len(others), generator=draws).tolist()]
        best = sorted(shuffled, key=lambda m: -affinity_M[m])
        chance = max(0.0, self.epsilon - context.round * self.decay)
        chosen: list[int] = []
        while best and len(chosen) < self.peers:
            lucky = float(torch.rand((), generator=draws)) < chance
            at = int(torch.randint(len(best), (), generator=draws)) if lucky else 0
            chosen.append(best.pop(at))
        return chosen
