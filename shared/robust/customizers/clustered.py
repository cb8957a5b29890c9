"""Clustered models: clients with similar updates share a model, which is kept between rounds.

Legend: D coordinates, M rows of the pool, C clusters.
"""

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor

from rampart_fl.shared.robust import linalg
from rampart_fl.shared.robust.base import Context, Rows, State
from rampart_fl.shared.robust.clustering import complete_linkage
from rampart_fl.shared.robust.customizers import Customization, customizers
from rampart_fl.shared.robust.customizers.grouping import (
    GroupedCustomizer,
    members,
    numbered_names,
    previous_models,
    update_group,
)
from rampart_fl.shared.robust.models import ModelBlock
from rampart_fl.shared.robust.pipeline import join_states, substate


@customizers.register("clustered")
class Clustered(GroupedCustomizer):
    """Puts clients into clusters by the direction of their updates; every cluster has a model.

    The model of cluster c is w_c = w + rule({d_k : k in cluster c}), where w is the global model,
    and d_k is the calibrated update of client k, that is, the difference between its trained model
    and w. Clusters result from complete linkage with the distance 1 - cos(d_k, d_j).

    A client trains from the model of its cluster, so its row includes what this model learned in
    earlier rounds. Clusters therefore stay similar from round to round. A zero row is treated as
    opposite to all other rows. Each new cluster takes the name of a cluster of the previous round;
    new and previous clusters are matched by the number of clients that they have in common. A
    client that does not take part in a round keeps its cluster. A client without a cluster trains
    from the global model.
    """

    paper = "Sattler et al., Clustered federated learning, 2020; FedCAP, section VI (ClusteredFL)"
    complexity = "O(n²d + n³)"
    passes = "1, then the base rule's over the rows of each cluster"
    breakdown = "inherited, in each cluster"
    clusters: int = Field(default=2, ge=1, le=64)
    """C, the number of clusters."""

    @property
    def recovers(self) -> bool:
        return True

    @property
    def names(self) -> tuple[str, ...]:
        """The clusters' names."""
        return numbered_names("cluster", self.clusters)

    def apply(
        self, rows: Rows, similar: Rows, state: State, context: Context
    ) -> tuple[Customization, State]:
        assert context.reference_D is not None
        names, pipeline = self.names, self.pipeline()
        models_CD = previous_models(names, state, context)
        known = {client: int(label) for client, label in state.by_id("label").items()}
        assigned = self._labels(similar, known) if len(rows) else {}
        states = {}
        for c, name in enumerate(names):
            own = members(rows, {client for client, label in assigned.items() if label == c})
            before = substate(state, name) if state.tensors else pipeline.init(rows.dim)
            model_D, states[name] = update_group(
                pipeline, own, context.reference_D, before, context
            )
            if model_D is not None:
                models_CD[c] = model_D
        labels = dict(sorted({**known, **assigned}.items()))
        of_rules = join_states(states)
        tensors = {
            "label": torch.tensor(list(labels.values()), dtype=torch.long),
            **of_rules.tensors,
        }
        assignment = {client: (names[label],) for client, label in labels.items()}
        following = State(
            tensors, {"label": tuple(labels), **of_rules.ids}, of_rules.vectors, of_rules.files
        )
        return Customization(ModelBlock(names, models_CD), assignment), following

    def _labels(self, rows: Rows, known: Mapping[str, int]) -> dict[str, int]:
        """The number of every client's cluster, keyed by client id."""
        distances_MM = 1 - linalg.cosines(rows)
        drawn_M = complete_linkage(distances_MM, self.clusters)
        place = match_clusters(drawn_M, [known.get(client) for client in rows.ids], self.clusters)
        return {c: place[n] for c, n in zip(rows.ids, drawn_M.tolist(), strict=True)}


def match_clusters(drawn_M: Tensor, held: list[int | None], clusters: int) -> list[int]:
    """For each new cluster, the number of the old cluster that gives the new cluster its name.

    Pairs of a new and an old cluster are matched in descending order of the number of clients in
    common. Ties go to the new cluster with the lower number, then to the old cluster with the lower
    number.

    >>> match_clusters(torch.tensor([0, 1, 1]), [1, 0, None], 2)
    [1, 0]
    """
    new = drawn_M.tolist()
    pairs = list(zip(new, held, strict=True))
    options = sorted(
        ((n, old) for n in range(clusters) for old in range(clusters)),
        key=lambda pair: (-pairs.count(pair), pair),
    )
    place: dict[int, int] = {}
    for n, old in options:
        if n not in place and old not in place.values():
            place[n] = old
    return [place[n] for n in range(clusters)]
