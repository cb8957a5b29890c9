"""FLCert: isolated groups of clients, whose models predict by majority vote.

Legend: D coordinates, G groups.
"""

from dataclasses import replace

import torch
from pydantic import Field

from rampart_fl.shared.assignment import group_of
from rampart_fl.shared.robust.base import Context, Rows, State
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


@customizers.register("flcert")
class FLCert(GroupedCustomizer):
    """Trains one model for each group of clients; the groups' models vote on predictions.

    Group g consists of the clients k with hash(k) mod G = g. In each round, the group's model w_g
    becomes w_g + rule({u_k : k in group g}), where u_k is the change that client k made to w_g.

    No group influences another group, so m hostile clients can change at most m votes. If two
    labels have equally many votes, the smaller label wins. A group that has never had enough
    clients for its rule does not vote. When the federation ends, clients count the groups' votes on
    each of their test samples. For each test sample, clients also compute m*, the largest number of
    hostile clients that cannot change the winner of the vote.
    """

    paper = "Cao et al., FLCert: provably secure federated learning against poisoning attacks, 2022"
    complexity = "the rule's, in G groups"
    passes = "the base rule's over the rows of each group"
    breakdown = "m* per decision"
    groups: int = Field(default=10, ge=1, le=64)
    """G, the number of groups; the hash of a client's id selects its group."""

    @property
    def isolates(self) -> bool:
        return True

    @property
    def names(self) -> tuple[str, ...]:
        """The groups' names."""
        return numbered_names("group", self.groups)

    def apply(
        self, rows: Rows, similar: Rows, state: State, context: Context
    ) -> tuple[Customization, State]:
        names, pipeline = self.names, self.pipeline()
        models_GD = previous_models(names, state, context)
        never_G = torch.zeros(self.groups, dtype=torch.long)
        rounds_G = state.tensors.get("rounds", never_G).clone()
        owners = {client: group_of(client, names) for client in (*rows.ids, *rows.dropped)}
        states = {}
        for g, name in enumerate(names):
            own = members(rows, {client for client, owner in owners.items() if owner == name})
            before = substate(state, name) if state.tensors else pipeline.init(rows.dim)
            model_D, states[name] = update_group(pipeline, own, models_GD[g], before, context)
            if model_D is not None:
                models_GD[g] = model_D
                rounds_G[g] += 1
        voters = tuple(name for name, ran in zip(names, rounds_G.tolist(), strict=True) if ran)
        of_rules = join_states(states)
        tensors = {"rounds": rounds_G, **of_rules.tensors}
        customization = Customization(ModelBlock(names, models_GD), groups=names, voters=voters)
        return customization, replace(of_rules, tensors=tensors)
